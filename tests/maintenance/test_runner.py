"""Runners: every work is done once, the first error ends the run, and what runs where is chosen by the arguments."""

from __future__ import annotations

import threading
from collections.abc import Generator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.maintenance import compact
from tablecrypt.maintenance.runner import FileDone, FileWork, LocalRunner, passed, runner_or_threads
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.file_functions import Copying, add, copy_encrypted, count_rows, note_and_wait, refuse_seven
from tests.support.plaintext import CANARY
from tests.support.tables import MASTER_KEY, SCHEMA, data_files, encrypted_sql_catalog


@pytest.fixture
def table(warehouse: Path, aws: AwsServer) -> EncryptedTable:
    catalog = encrypted_sql_catalog(warehouse, aws)
    made = catalog.create_table("db.rows", SCHEMA, properties={"encryption.key-id": MASTER_KEY})
    for count in (3, 5, 7):
        made.append(pa.table({"id": range(count), "note": [CANARY] * count}, schema=SCHEMA.as_arrow()))
    assert isinstance(made, EncryptedTable)
    return made


def works_of(table: EncryptedTable) -> list[FileWork[str]]:
    files = data_files(table)
    return [FileWork(file.file_path, (key_metadata_of(file),), file.file_size_in_bytes) for file in files]


@pytest.mark.parametrize("workers", [1, 3])
def test_every_work_is_done_once(table: EncryptedTable, workers: int) -> None:
    works = [FileWork(number, size=number % 5) for number in range(20)]

    done = list(LocalRunner(workers).run(table, partial(add, 100), works))

    assert sorted((index, each.result) for index, each in done) == [(number, number + 100) for number in range(20)]


def test_files_are_read_and_written_with_the_keys_that_travel_beside_the_work(table: EncryptedTable) -> None:
    works = works_of(table)
    runner = LocalRunner()
    assert sorted(done.result for _, done in runner.run(table, count_rows, works)) == [3, 5, 7]
    copying = [FileWork(Copying(each.work, f"{table.location()}/copies")) for each in works]

    for index, done in runner.run(table, copy_encrypted, copying):
        with (
            table.io.decrypting_input(done.result.location, done.keys[0]).open() as copied,
            table.io.raw_input(works[index].work).open() as original,
        ):
            assert copied.read() == original.read()


def test_the_largest_work_is_begun_first(table: EncryptedTable) -> None:
    begun: list[int] = []

    def note(io: EncryptingFileIO, number: int, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[None]:
        begun.append(number)
        return FileDone(None)

    assert len(list(LocalRunner(1).run(table, note, [FileWork(size, size=size) for size in (1, 30, 2, 20)]))) == 4

    assert begun == [30, 20, 2, 1]


def test_an_error_is_raised_and_what_was_not_begun_stays_so(table: EncryptedTable) -> None:
    begun: list[int] = []

    def note(io: EncryptingFileIO, number: int, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[int]:
        begun.append(number)
        return refuse_seven(io, number, keys)

    with pytest.raises(FormatError, match="seven is not read"):
        list(LocalRunner(1).run(table, note, [FileWork(7), *(FileWork(number) for number in range(100, 200))]))

    assert len(begun) < 10


def test_works_run_beside_each_other(table: EncryptedTable) -> None:
    together = threading.Barrier(3, timeout=60)

    def meet(io: EncryptingFileIO, number: int, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[int]:
        together.wait()
        return FileDone(number)

    assert len(list(LocalRunner(3).run(table, meet, [FileWork(number) for number in range(6)]))) == 6


def test_a_consumer_that_stops_ends_the_run(table: EncryptedTable, tmp_path: Path) -> None:
    results = LocalRunner(1).run(table, partial(note_and_wait, str(tmp_path)), [FileWork(number) for number in range(100)])

    next(results)
    results.close()  # type: ignore[attr-defined]

    assert len(list(tmp_path.iterdir())) < 10


def test_results_that_pass_their_check_come_in_order_and_those_before_an_error_come_first() -> None:
    def numbers() -> Generator[int, None, None]:
        yield from range(40)
        raise FormatError("no more")

    came: list[int] = []
    with pytest.raises(FormatError, match="no more"):
        came.extend(each for each in passed(numbers(), str))

    assert came == list(range(40))


def test_of_results_that_have_come_only_those_that_do_not_pass_are_not_yielded() -> None:
    taken: list[int] = []

    def numbers() -> Generator[int, None, None]:
        for number in range(1000):
            taken.append(number)
            yield number

    came: list[int] = []
    with pytest.raises(ZeroDivisionError):
        came.extend(each for each in passed(numbers(), lambda number: 1 // (number - 7)))

    assert came == [number for number in taken if number != 7]
    assert len(taken) < 100


@pytest.mark.parametrize("ends_in_an_error", [False, True])
def test_a_check_that_fails_after_all_results_came_loses_none_behind_it(ends_in_an_error: bool) -> None:
    all_came = threading.Event()

    def numbers() -> Generator[int, None, None]:
        yield from range(10)
        all_came.set()
        if ends_in_an_error:
            raise FormatError("no more")

    def check(number: int) -> float:
        assert all_came.wait(timeout=60)
        return 1 // (number - 7)

    came: list[int] = []
    with pytest.raises(ZeroDivisionError):
        came.extend(each for each in passed(numbers(), check))

    assert came == [number for number in range(10) if number != 7]


def test_impossible_numbers_of_workers_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="workers is 0"):
        LocalRunner(0)
    with pytest.raises(ConfigurationError, match="leave it out where runner= is given"):
        runner_or_threads(LocalRunner(), workers=2)


def test_what_is_no_runner_is_refused_before_anything_is_done(table: EncryptedTable) -> None:
    with pytest.raises(ConfigurationError, match="runner is an object; it must be a Runner"):
        compact(table, runner=object())  # type: ignore[arg-type]
