"""A FileIO that reads and writes local files, and of which nobody knows how to list them."""

from __future__ import annotations

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

CLASS = f"{__name__}.UnlistableFileIO"


class UnlistableFileIO(FileIO):
    """PyArrowFileIO, seen from outside."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._inside = PyArrowFileIO(properties)

    def new_input(self, location: str) -> InputFile:
        return self._inside.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        return self._inside.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._inside.delete(location)
