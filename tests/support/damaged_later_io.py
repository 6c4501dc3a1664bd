"""A FileIO whose files of one kind are changed in storage while they are in use: whole for so many openings of all of them, and then not.

catalog = …, **{"py-io-impl": DAMAGED_LATER_IO}
with damaged_after(".puffin", 3) as state: verify(table)      state.is_damaged says whether it came to that
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from tests.support.tables import flip, path_of

DAMAGED_LATER_IO: Final = f"{__name__}.DamagedLaterIO"


@dataclass
class Damage:
    """Which files, how often they are opened yet before one is changed, and which one was."""

    ending: str
    left: int
    damaged: Path | None = None

    @property
    def is_damaged(self) -> bool:
        return self.damaged is not None

    def opened(self, location: str) -> None:
        if not location.endswith(self.ending) or self.is_damaged:
            return
        if not self.left:
            self.damaged = path_of(location)
            flip(self.damaged, -30)
        self.left -= 1


class DamagedLaterIO(PyArrowFileIO):
    """PyArrowFileIO under which files change."""

    damage: ClassVar[Damage | None] = None

    def new_input(self, location: str) -> PyArrowFile:
        if DamagedLaterIO.damage is not None:
            DamagedLaterIO.damage.opened(location)
        return super().new_input(location)


@contextmanager
def damaged_after(ending: str, openings: int) -> Iterator[Damage]:
    """Let the files whose names end so be opened so often in the block, and then change the next one."""
    DamagedLaterIO.damage = Damage(ending, openings)
    try:
        yield DamagedLaterIO.damage
    finally:
        DamagedLaterIO.damage = None
