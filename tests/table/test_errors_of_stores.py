"""What a store says of a file that is open already does not say which file that is: the error that a user sees does."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io import InputStream, OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from tests.support.tables import memory_catalog, new_table, rows

SAID = "AWS Error ACCESS_DENIED during GetObject operation: "
FILES = {
    "metadata": r"\d{5}-[^/]*\.metadata\.json",
    "a manifest list": r"snap-[^/]*\.avro",
    "a manifest": r"[^/]*-m0\.avro",
    "a data file": r"[^/]*\.parquet",
    "a deletion vector": r"[^/]*\.puffin",
}


class _Refused(io.BytesIO):
    """An open file of which every read is refused."""

    def read(self, size: int | None = -1) -> bytes:
        raise OSError(SAID)


class _Full(io.BytesIO):
    """A new file that no byte can be written to."""

    def write(self, data: object) -> int:
        raise OSError(28, "Error writing bytes to file")


class _FullAtItsEnd(io.BytesIO):
    """One whose bytes wait for its end."""

    def close(self) -> None:
        if not self.closed:
            super().close()
            raise OSError(28, "Error writing bytes to file")


class _In(PyArrowFile):
    def open(self, seekable: bool = True) -> InputStream:
        if RefusingFileIO.refused is None or not re.fullmatch(RefusingFileIO.refused, Path(self.location).name):
            return super().open(seekable)
        refused: InputStream = pa.PythonFile(_Refused(super().open().read()), mode="r")
        return refused


class _Out(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        if RefusingFileIO.full is None or not re.fullmatch(RefusingFileIO.full, Path(self.location).name):
            return super().create(overwrite)
        full: OutputStream = pa.PythonFile(RefusingFileIO.kind_of_disk(), mode="w")
        return full


class RefusingFileIO(PyArrowFileIO):
    """A store that refuses to read, or has no room for, the files of one kind."""

    refused: str | None = None
    full: str | None = None
    kind_of_disk: type[io.BytesIO] = _Full

    def new_input(self, location: str) -> PyArrowFile:
        file = super().new_input(location)
        file.__class__ = _In
        return file

    def new_output(self, location: str) -> PyArrowFile:
        file = super().new_output(location)
        file.__class__ = _Out
        return file


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    catalog = memory_catalog(tmp_path, {"py-io-impl": f"{__name__}.RefusingFileIO"})
    table = new_table(catalog, appends=[rows(0)], properties={"write.delete.mode": "merge-on-read"})
    table.delete("id = 3")
    yield catalog
    RefusingFileIO.refused = RefusingFileIO.full = None


@pytest.mark.parametrize("kind", FILES)
def test_a_read_that_the_store_refuses_names_the_file(catalog: Catalog, kind: str) -> None:
    RefusingFileIO.refused = FILES[kind]
    with pytest.raises(OSError, match=rf"/db/t/.*/{FILES[kind]}: {SAID}"):
        catalog.load_table("db.t").scan().to_arrow()


@pytest.mark.parametrize("disk", [_Full, _FullAtItsEnd])
@pytest.mark.parametrize("kind", FILES)
def test_a_full_disk_names_the_file(catalog: Catalog, kind: str, disk: type[io.BytesIO]) -> None:
    RefusingFileIO.full, RefusingFileIO.kind_of_disk = FILES[kind], disk
    table = catalog.load_table("db.t")
    with pytest.raises(OSError, match=rf"\[Errno 28\] .*/db/t/.*/{FILES[kind]}'"):
        table.delete("id = 4") if kind == "a deletion vector" else table.append(rows(20))
