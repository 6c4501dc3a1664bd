"""What the command's exit code says.

0      done, and nothing to report
1      doctor, audit and verify: something was found; orphans and shred: something could not be done
2      refused, or wrong arguments: stderr says what and why
130    interrupted
"""

from __future__ import annotations

from typing import Final

FOUND: Final = 1
REFUSED: Final = 2
INTERRUPTED: Final = 130
