"""A store to which each deletion is sent twice, as where the first answer was lost, and which says of the second that nothing is there."""

from __future__ import annotations

from typing import Final

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

DELETING_TWICE_IO: Final = f"{__name__}.DeletingTwiceIO"


class DeletingTwiceIO(PyArrowFileIO):
    """PyIceberg's own FileIO, but for deletions."""

    def delete(self, location: str | InputFile | OutputFile) -> None:
        super().delete(location)
        super().delete(location)
