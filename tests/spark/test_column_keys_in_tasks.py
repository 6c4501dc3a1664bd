"""What a task of a Spark job may do with protected columns: what the driver may, under column keys that the table has, and no more.

The adversary changes what a task reads or reports; the careless administrator gives executors other rights than the driver.
"""

from __future__ import annotations

import pickle
from typing import Any, Final

import pytest
from pyiceberg.table import ALWAYS_TRUE

from tablecrypt import maintenance
from tablecrypt.engines.changes import check_unchanged
from tablecrypt.engines.protected_columns import JobColumns, JobFileIO, ensure_column_keys, protected_among
from tablecrypt.errors import AuthenticationError, ColumnKeyDeniedError, KeyNotFoundError, KmsAccessDeniedError
from tablecrypt.keys.column_key_ring import ColumnKeyMaker
from tablecrypt.keys.column_keys import ColumnKeys
from tablecrypt.spark.tables import readable_columns
from tablecrypt.table.protection.policy import column_keys
from tablecrypt.table.protection.writing import StaleWriteError
from tablecrypt.table.reader import ReadOptions, TaskReader
from tablecrypt.table.table import EncryptedTable
from tests.support.bound_schemas import OF_TEXT
from tests.support.protected_tables import EMAIL, SSN, Clients, commit_column_keys, declare, loaded, protected_table, table_of_people
from tests.support.tables import metadata_of

PREFIX: Final = b"aad prefix of a file"
ROWS: Final = table_of_people(
    [{"id": 1, "ssn": "SSN-1", "person": {"email": "a@example.org", "age": 3}}, {"id": 2, "ssn": "SSN-2", "person": None}]
)


@pytest.fixture
def people(both: Clients) -> EncryptedTable:
    return protected_table(both.payroll, appends=[ROWS])


def task_io(table: EncryptedTable, columns: JobColumns | None) -> JobFileIO:
    assert columns is not None
    sent = pickle.loads(pickle.dumps(columns))
    return JobFileIO(table.io.inner, None, sent)


def read(table: EncryptedTable, columns: JobColumns | None, masked: str = "mask") -> list[Any]:
    metadata = metadata_of(table).without_history()
    reader = TaskReader(metadata, task_io(table, columns), table.schema(), ALWAYS_TRUE, ReadOptions(masked=masked))
    tasks = table.scan().plan_files()
    return [value for task in tasks for batch in reader.batches(task) for value in batch.column("ssn").to_pylist()]


def columns_of(table: EncryptedTable, readable: frozenset[int] | None, properties: dict[str, str] | None) -> JobColumns | None:
    return JobColumns.of(metadata_of(table), table.io, readable, properties)


def keys_of_task(table: EncryptedTable, columns: JobColumns | None) -> ColumnKeys:
    return column_keys(metadata_of(table).without_history(), task_io(table, columns))


@pytest.mark.parametrize("brought", [True, False])
def test_a_task_reads_what_the_driver_may_read(both: Clients, people: EncryptedTable, brought: bool) -> None:
    table = loaded(both.payroll)
    readable = readable_columns(table, table.schema(), set(), "mask")
    columns = columns_of(table, readable, None if brought else dict(both.payroll.properties))

    assert readable == {SSN, EMAIL}
    assert read(table, columns) == ["SSN-1", "SSN-2"]


def test_an_executor_that_may_do_more_than_the_driver_shows_no_more(both: Clients, people: EncryptedTable) -> None:
    table = loaded(both.analyst)
    readable = readable_columns(table, table.schema(), set(), "mask")
    columns = columns_of(table, readable, dict(both.payroll.properties))

    assert readable == frozenset()
    assert read(table, columns) == [None, None]
    with pytest.raises(ColumnKeyDeniedError):
        read(table, columns, masked="error")
    with pytest.raises(ColumnKeyDeniedError):
        keys_of_task(table, columns).generate([SSN], PREFIX)
    asked = columns_of(table, None, {})
    assert asked is not None
    assert asked.readable == frozenset()


def test_an_executor_that_may_do_less_than_the_driver_fails_and_masks_nothing(both: Clients, people: EncryptedTable) -> None:
    columns = columns_of(loaded(both.payroll), None, dict(both.analyst.properties))

    with pytest.raises(KmsAccessDeniedError, match="this executor may not use 'pii'") as refused:
        read(people, columns)
    assert not isinstance(refused.value, ColumnKeyDeniedError)
    with pytest.raises(KmsAccessDeniedError, match="this executor may not use 'pii'"):
        keys_of_task(people, columns).generate([SSN], PREFIX)


def test_a_driver_refuses_a_filter_on_what_it_may_not_read(both: Clients, people: EncryptedTable) -> None:
    with pytest.raises(ColumnKeyDeniedError):
        readable_columns(loaded(both.analyst), loaded(both.analyst).schema(), {SSN}, "mask")


def test_only_columns_of_the_job_can_be_opened_with_what_it_brings(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[ROWS], **{"encryption.column-keys": "pii: ssn; fin: salary"})
    columns = columns_of(table, frozenset({SSN}), None)

    assert columns is not None
    assert len(columns.opened_keks or {}) == 1
    keys = keys_of_task(table, columns)
    keys.check_readable([SSN])
    with pytest.raises(ColumnKeyDeniedError):
        keys.check_readable([3])


def test_no_key_is_in_the_repr_of_what_a_job_brings_and_a_task_s_files_are_not_pickled(people: EncryptedTable) -> None:
    columns = columns_of(people, None, None)

    assert columns is not None
    for key in (columns.opened_keks or {}).values():
        assert repr(key) not in repr(columns)
        assert key.hex() not in repr(columns)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(task_io(people, columns))


@pytest.mark.parametrize("brought", [True, False])
def test_a_task_writes_under_committed_column_keys_alone(both: Clients, brought: bool) -> None:
    table = protected_table(both.payroll)
    maintenance.shred_column(table, "ssn")
    properties = None if brought else dict(both.payroll.properties)
    with pytest.raises((KeyNotFoundError, KmsAccessDeniedError)):
        keys_of_task(table, columns_of(table, None, properties)).generate([SSN], PREFIX)

    ensure_column_keys(table)
    made = keys_of_task(table, columns_of(table, None, properties)).generate([SSN, EMAIL], PREFIX)
    fresh = loaded(both.payroll)
    keys = column_keys(metadata_of(fresh), fresh.io)
    assert {each: keys.unwrap(each, key.key_metadata(OF_TEXT), PREFIX, OF_TEXT, 1) for each, key in made.items()} == {
        each: key.secret for each, key in made.items()
    }


@pytest.mark.parametrize("brought", [True, False])
def test_a_task_hashes_with_the_tables_key_and_makes_none(both: Clients, brought: bool) -> None:
    table = protected_table(both.payroll)
    ensure_column_keys(table)
    declare(table, ssn="hash")
    properties = None if brought else dict(both.payroll.properties)
    task = keys_of_task(table, columns_of(table, None, properties))
    with pytest.raises(KeyNotFoundError, match="no key of its hash mask"):
        task.mask_key(SSN)
    with pytest.raises(KeyNotFoundError, match="no key of its hash mask"):
        task.generate([SSN], PREFIX)

    ensure_column_keys(table)
    task = keys_of_task(table, columns_of(table, None, properties))
    assert task.mask_key(SSN) == column_keys(metadata_of(table), table.io).mask_key(SSN)
    assert task.generate([SSN], PREFIX)


def test_column_keys_are_committed_once(both: Clients) -> None:
    table = protected_table(both.payroll)
    loaded_before = loaded(both.payroll)
    ensure_column_keys(table)
    once = table.metadata_location

    ensure_column_keys(loaded(both.payroll))
    ensure_column_keys(loaded_before)
    assert loaded_before.metadata_location == once
    assert loaded(both.payroll).metadata_location == once
    assert len(metadata_of(table).key_ring.column_keys) == 2
    assert len(metadata_of(table).key_ring.column_keks) == 1


def test_who_may_not_read_a_column_commits_no_key_of_it(both: Clients) -> None:
    maintenance.shred_column(protected_table(both.payroll), "ssn")
    table = loaded(both.analyst)

    with pytest.raises(ColumnKeyDeniedError):
        ensure_column_keys(table)
    assert SSN not in {key.field_id for key in metadata_of(loaded(both.payroll)).key_ring.column_keys}


def test_column_key_metadata_of_another_file_or_column_opens_in_no_task(people: EncryptedTable) -> None:
    first, second = commit_column_keys(people, SSN, EMAIL)
    keys = keys_of_task(people, columns_of(people, None, None))

    keys.unwrap(SSN, first.key_metadata, first.aad_prefix, OF_TEXT, 1)
    for field_id, key_metadata, prefix in (
        (SSN, first.key_metadata, PREFIX),
        (SSN, second.key_metadata, second.aad_prefix),
        (EMAIL, first.key_metadata, first.aad_prefix),
        (SSN, first.key_metadata[:-1] + bytes([first.key_metadata[-1] ^ 1]), first.aad_prefix),
    ):
        with pytest.raises(AuthenticationError):
            keys.unwrap(field_id, key_metadata, prefix, OF_TEXT, 1)


def test_what_tasks_wrote_is_refused_where_protection_changed_meanwhile(both: Clients, people: EncryptedTable) -> None:
    planned = loaded(both.payroll).metadata
    check_unchanged("db.people", planned, loaded(both.payroll).metadata)

    declare(loaded(both.payroll), "pii: ssn, person.email; fin: salary")
    with pytest.raises(StaleWriteError, match="column 'salary' was declared protected"):
        check_unchanged("db.people", planned, loaded(both.payroll).metadata)

    planned = loaded(both.payroll).metadata
    maintenance.shred_column(loaded(both.payroll), "ssn", delete_below=[people.location()])
    with pytest.raises(StaleWriteError, match="was destroyed since the rows were written"):
        check_unchanged("db.people", planned, loaded(both.payroll).metadata)


def test_spark_s_own_reader_is_not_for_protected_columns_or_what_contains_them(people: EncryptedTable) -> None:
    metadata, schema = people.metadata, people.schema()

    for columns in (("ssn",), ("person",), ("person.email",), ("person.age",), ("id", "ssn")):
        assert "protected" in str(protected_among(metadata, schema.select(*columns)))
    assert protected_among(metadata, schema.select("id", "note", "phones")) is None


def test_a_job_is_planned_with_the_key_lifespan_of_its_driver(both: Clients) -> None:
    table = protected_table(both.payroll)
    ensure_column_keys(table)
    columns = columns_of(table, None, None)

    assert columns is not None
    maker: ColumnKeyMaker = columns.maker()
    assert maker.now_ms() == columns.planned_ms
