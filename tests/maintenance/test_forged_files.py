"""Workers of maintenance that were taken over: a file that one reports has a name of the run and lies in the table, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tablecrypt import maintenance as m
from tablecrypt.errors import AuthenticationError
from tablecrypt.maintenance.runner import FileDone, FileFunction, FileWork, LocalRunner
from tablecrypt.manifests.records import DATA_FILE_POSITIONS
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.tables import data_files, data_paths, ids, new_table, rows

Forge = Callable[[str, "Places"], str]


class Places:
    """Where a worker may say that its file is: a file of the table, and a folder outside of it."""

    def __init__(self, own: str, elsewhere: str) -> None:
        self.own, self.elsewhere = own, elsewhere


FORGED: Final[dict[str, Forge]] = {
    "a file of the table": lambda location, places: places.own,
    "a name of the run elsewhere": lambda location, places: f"{places.elsewhere}/{location.rpartition('/')[2]}",
    "a folder with a name of the run": lambda location, places: f"{location}/part.parquet",
}


class Forging:
    """Runs work as honest workers do, and then has each say that its file is elsewhere."""

    def __init__(self, table: EncryptedTable, forge: Callable[[str], str]) -> None:
        self._codec, self._forge = FileEntryCodec(table.metadata), forge

    def run(
        self, table: EncryptedTable, function: FileFunction[Any, Any], works: Sequence[FileWork[Any]]
    ) -> Iterator[tuple[int, FileDone[Any]]]:
        for index, done in LocalRunner(1).run(table, function, works):
            yield index, replace(done, result=self._forged(done.result))

    def _forged(self, result: Any) -> Any:
        if not isinstance(result, bytes):
            return replace(result, location=self._forge(result.location))
        files = self._codec.decode_files(result)
        for file in files:
            file[DATA_FILE_POSITIONS["file_path"]] = self._forge(file.file_path)
        return self._codec.encode_files(files)


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("operation", ["compact", "reencrypt"])
def test_a_file_that_its_worker_did_not_write_in_the_table_is_neither_committed_nor_deleted(
    catalog: EncryptedSqlCatalog, warehouse: Path, operation: str, forge: Forge
) -> None:
    table = new_table(catalog, appends=[rows(0, 2), rows(2, 2)])
    before = data_paths(table)
    places = Places(data_files(table)[0].file_path, f"{warehouse.as_uri()}/elsewhere")
    runner = Forging(table, lambda location: forge(location, places))

    with pytest.raises(AuthenticationError, match="reports a file "):
        if operation == "compact":
            m.compact(table, rewrite_all=True, runner=runner)
        else:
            m.reencrypt(table, runner=runner)

    fresh = catalog.load_table("db.t")
    assert ids(fresh) == [0, 1, 2, 3]
    assert data_paths(fresh) == before
    assert all(path.is_file() for path in before)
    # Nothing of it is in the journal either.
    assert m.reencrypt(fresh).resumed == 0
    assert ids(catalog.load_table("db.t")) == [0, 1, 2, 3]


def test_one_file_for_two_old_ones_is_refused(catalog: EncryptedSqlCatalog) -> None:
    table = new_table(catalog, appends=[rows(0, 2), rows(2, 2)])
    first: list[str] = []

    def always_the_first(location: str) -> str:
        first.append(location)
        return first[0]

    with pytest.raises(AuthenticationError, match="did not write, or a file twice"):
        m.reencrypt(table, runner=Forging(table, always_the_first))
    assert ids(catalog.load_table("db.t")) == [0, 1, 2, 3]


def test_honest_workers_are_believed(catalog: EncryptedSqlCatalog) -> None:
    table = new_table(catalog, appends=[rows(0, 2), rows(2, 2)])
    m.compact(table, rewrite_all=True, runner=Forging(table, lambda location: location))
    m.reencrypt(table.refresh(), runner=Forging(table, lambda location: location))
    assert ids(catalog.load_table("db.t")) == [0, 1, 2, 3]
