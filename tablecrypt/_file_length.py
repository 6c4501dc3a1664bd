"""How many bytes an open file has."""

from __future__ import annotations

from io import SEEK_END
from typing import Any

import pyarrow as pa


def length_of(file: Any) -> int:
    """Return the length of an open, seekable binary file in bytes, from the file itself: asking the store again would cost a request.

    Its position is any afterwards. Raises what the file raises.
    """
    # Arrow's client of Google's storage begins to read where a seek leads to, and the store refuses a read that begins at the end.
    if isinstance(file, pa.NativeFile):
        return int(file.size())
    file.seek(0, SEEK_END)
    return int(file.tell())
