"""Workers of maintenance that were taken over: what one reports has a name of the run, lies in the table and opens, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tablecrypt import maintenance as m
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, FormatError
from tablecrypt.maintenance.runner import FileDone, FileFunction, FileWork, LocalRunner, Runner
from tablecrypt.manifests.records import DATA_FILE_POSITIONS
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.listeners import threads_at_work
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


Rekey = Callable[[StandardKeyMetadata], StandardKeyMetadata]
WRONG: Final[dict[str, Rekey]] = {
    "key": lambda key: StandardKeyMetadata(Secret(bytes(16)), key.aad_prefix, key.file_length),
    "AAD prefix": lambda key: StandardKeyMetadata(key.encryption_key, bytes(16), key.file_length),
    "length": lambda key: key.with_file_length((key.file_length or 0) + 1),
}
BY_OPERATION: Final[dict[str, Callable[[EncryptedTable, Runner], object]]] = {
    "compact": lambda table, runner: m.compact(table, rewrite_all=True, runner=runner),
    "reencrypt": lambda table, runner: m.reencrypt(table, runner=runner),
}


class Misreporting:
    """Runs work as honest workers do, and then says something else of the keys of new files, or of how many rows they have."""

    def __init__(self, rekey: Callable[[tuple[StandardKeyMetadata, ...]], tuple[StandardKeyMetadata, ...]]) -> None:
        self._rekey = rekey

    def run(
        self, table: EncryptedTable, function: FileFunction[Any, Any], works: Sequence[FileWork[Any]]
    ) -> Iterator[tuple[int, FileDone[Any]]]:
        for index, done in LocalRunner(1).run(table, function, works):
            yield index, replace(done, keys=self._rekey(done.keys))


@pytest.mark.parametrize("operation", BY_OPERATION.values(), ids=BY_OPERATION)
@pytest.mark.parametrize("rekey", WRONG.values(), ids=WRONG)
def test_no_file_takes_the_place_of_others_that_does_not_open_by_what_its_worker_says(
    catalog: EncryptedSqlCatalog, rekey: Rekey, operation: Callable[[EncryptedTable, Runner], object]
) -> None:
    table = new_table(catalog, appends=[rows(0, 2), rows(2, 2)])
    before = data_paths(table)

    with pytest.raises((AuthenticationError, FormatError), match=r"is not what the worker|its key metadata"):
        operation(table, Misreporting(lambda keys: tuple(map(rekey, keys))))

    fresh = catalog.load_table("db.t")
    assert data_paths(fresh) == before
    assert m.reencrypt(fresh).resumed == 0
    assert ids(catalog.load_table("db.t")) == [0, 1, 2, 3]


@pytest.mark.parametrize("operation", BY_OPERATION.values(), ids=BY_OPERATION)
def test_an_operation_that_refuses_a_file_leaves_no_thread_behind_while_its_error_is_kept(
    catalog: EncryptedSqlCatalog, operation: Callable[[EncryptedTable, Runner], object]
) -> None:
    table = new_table(catalog, appends=[rows(first, 2) for first in range(0, 20, 2)])

    with pytest.raises((AuthenticationError, FormatError)) as kept:
        operation(table, Misreporting(lambda keys: tuple(map(WRONG["AAD prefix"], keys))))

    assert kept.value.__traceback__ is not None
    assert threads_at_work() == []


@pytest.mark.parametrize("operation", BY_OPERATION.values(), ids=BY_OPERATION)
@pytest.mark.parametrize("count", [0, 2])
def test_a_worker_that_reports_no_key_of_a_file_or_two_is_one_error(
    catalog: EncryptedSqlCatalog, count: int, operation: Callable[[EncryptedTable, Runner], object]
) -> None:
    table = new_table(catalog, appends=[rows(0, 2), rows(2, 2)])

    with pytest.raises(FormatError, match=r"reports .* keys"):
        operation(table, Misreporting(lambda keys: keys * count))

    assert ids(catalog.load_table("db.t")) == [0, 1, 2, 3]


@pytest.mark.parametrize("rekey", WRONG.values(), ids=WRONG)
def test_no_copy_is_made_with_delete_files_that_do_not_open_by_what_their_worker_says(
    catalog: EncryptedSqlCatalog, warehouse: Path, rekey: Rekey
) -> None:
    table = new_table(catalog, appends=[rows(0, 4)], properties={"write.delete.mode": "merge-on-read"})
    table.delete("id = 3")
    place = f"{warehouse.as_uri()}/copies/t"

    with pytest.raises(AuthenticationError, match="is not what the worker"):
        m.relocate(table, place, register_as="db.copy", runner=Misreporting(lambda keys: tuple(map(rekey, keys))))

    m.relocate(table, place, register_as="db.copy", runner=Misreporting(lambda keys: keys))
    assert ids(catalog.load_table("db.copy")) == [0, 1, 2]


def test_a_compaction_without_all_rows_of_its_files_is_not_committed(catalog: EncryptedSqlCatalog) -> None:
    table = new_table(catalog, appends=[rows(0, 2), rows(2, 2)])
    codec = FileEntryCodec(table.metadata)

    class Losing(LocalRunner):
        def run(
            self, table: EncryptedTable, function: FileFunction[Any, Any], works: Sequence[FileWork[Any]]
        ) -> Iterator[tuple[int, FileDone[Any]]]:
            for index, _ in super().run(table, function, works):
                yield index, FileDone(codec.encode_files([]))

    with pytest.raises(FormatError, match="have 4 rows by their manifests, but 0 were read"):
        m.compact(table, rewrite_all=True, runner=Losing(1))

    assert ids(catalog.load_table("db.t")) == [0, 1, 2, 3]
