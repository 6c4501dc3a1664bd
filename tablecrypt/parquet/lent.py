"""What pyarrow still holds of a view when a read is done.

Arrow's own threads let go of a view, and of the bytes that it gave them, some moments after the rows are there. They need the interpreter
for that, and when one of them asks for an interpreter that is ending, the process aborts. So its end waits until all is back.
"""

from __future__ import annotations

import atexit
import itertools
import time
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from typing_extensions import Buffer

_PATIENCE_S: Final = 1.0
"""For what a caller holds on to, as for a scan that was not finished, no wait is long enough."""

_lent: Final[WeakValueDictionary[int, Any]] = WeakValueDictionary()
_numbers: Final = itertools.count()


def lend(data: Buffer) -> memoryview:
    """Return the bytes as something whose end is noticed."""
    view = memoryview(data)
    await_return(view)
    return view


def await_return(lent: object) -> None:
    """Have the end of the process wait until nobody holds the object."""
    _lent[next(_numbers)] = lent


@atexit.register
def wait_until_returned(patience_s: float = _PATIENCE_S) -> None:
    """Return when nothing is lent, or after so many seconds."""
    deadline = time.monotonic() + patience_s
    while _lent and time.monotonic() < deadline:
        time.sleep(0.001)
