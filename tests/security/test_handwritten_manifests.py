"""What somebody who may commit writes into manifests by hand: one file under two names, and what then looks at the first of them alone."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestFile, PartitionFieldSummary
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from tablecrypt import maintenance as m
from tablecrypt.errors import ConfigurationError, FormatError, TablecryptError
from tablecrypt.maintenance import FindingKind
from tablecrypt.maintenance.expiry import expire_snapshots
from tablecrypt.manifests.records import MANIFEST_FILE_POSITIONS
from tablecrypt.table.snapshots import CommitOptions
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.transaction import EncryptedTransaction
from tests.maintenance.test_erase import FILTER, PERSON, check_nothing_is_left, people
from tests.support.handwritten_manifests import HandwrittenManifest, commit_by_hand, named_otherwise
from tests.support.listeners import stopping
from tests.support.manifests import new_key
from tests.support.peak_memory import measured
from tests.support.protected_tables import Clients, declare, loaded, persons, protected_table
from tests.support.table_files import TableFiles
from tests.support.tables import current_snapshot, data_files, folder_of, path_of

_DELETES: Final = ManifestContent.DELETES
_SUMMARY: Final = PartitionFieldSummary(False, None, b"a", b"z")
NOBODY: Final = {"referenced_data_file": "s3://nowhere/data.parquet"}
AS_DELETES: Final[dict[str, dict[str, Any]]] = {
    "a deletion vector": {"file_format": FileFormat.PUFFIN, "content_offset": 4, "content_size_in_bytes": 40, **NOBODY},
    "position deletes": NOBODY,
}


def of_person(table: Table) -> DataFile:
    """The data file that holds the person, of a table that has no other snapshot than its newest."""
    [task] = table.scan(FILTER).plan_files()
    return task.file


def forget_history(table: Table) -> None:
    """Leave the newest snapshot alone: what others know of a file is not met before the handwritten manifest."""
    expire_snapshots(table, older_than=dt.datetime.now(dt.UTC) + dt.timedelta(days=1))
    table.refresh()


@pytest.mark.parametrize("name", AS_DELETES)
def test_a_data_file_that_is_named_as_deletes_too_is_searched_when_its_rows_are_erased(catalog: Catalog, name: str) -> None:
    table = people(catalog)
    deletes = named_otherwise(of_person(table), content=DataFileContent.POSITION_DELETES, record_count=1, **AS_DELETES[name])
    commit_by_hand(table, HandwrittenManifest([deletes], _DELETES))
    forget_history(table)
    assert table.scan(FILTER).count() == 1

    erased = m.erase(table, FILTER)

    assert erased.is_complete
    assert table.refresh().scan().count() == 59
    assert PERSON not in table.scan().to_arrow()["customer_id"].to_pylist()
    check_nothing_is_left(table)


DELETING: Final[dict[str, Callable[[EncryptedTable], object]]] = {
    "expire_snapshots": lambda table: expire_snapshots(table, older_than=dt.datetime.now(dt.UTC) + dt.timedelta(days=1)),
    "erase": lambda table: m.erase(table, "id = 1"),
}


@pytest.mark.parametrize("spelled", ["//data/", "/./data/", "/x/../data/", "/%64ata/"])
@pytest.mark.parametrize("operation", DELETING.values(), ids=DELETING)
def test_a_file_that_an_old_snapshot_names_by_another_spelling_stays(
    both: Clients, operation: Callable[[EncryptedTable], object], spelled: str
) -> None:
    table = protected_table(both.payroll, appends=[persons(1)])
    table.append(persons(11, 12))
    [needed] = [task.file for task in table.scan("id > 10").plan_files()]
    before = current_snapshot(table).snapshot_id
    commit_by_hand(table, HandwrittenManifest([named_otherwise(needed, file_path=needed.file_path.replace("/data/", spelled))]))
    table.manage_snapshots().rollback_to_snapshot(before).commit()

    # An erasure ends here where the other spelling is no file at all.
    with suppress(TablecryptError):
        operation(table)

    assert path_of(needed.file_path).exists()
    assert loaded(both.payroll).scan("id > 10").count() == 2


def test_a_small_delete_file_that_names_a_row_millions_of_times_takes_no_memory_for_each(both: Clients, tmp_path: Path) -> None:
    table = protected_table(both.payroll, appends=[persons(1, 2)])
    [file] = data_files(table)
    deletes = TableFiles(folder_of(table), table.schema()).position_deletes([(file.file_path, 0)] * 3_000_000)
    assert deletes.file_size_in_bytes < 500_000
    commit_by_hand(loaded(both.analyst), HandwrittenManifest([deletes], _DELETES))
    table.refresh()

    def read() -> None:
        assert table.scan().to_arrow()["id"].to_pylist() == [2]

    outcome = measured(read, tmp_path / "peak")
    assert (outcome.error, outcome.peak < 150_000_000) == (None, True), outcome


def test_a_delete_file_whose_name_goes_up_is_not_written_outside_of_the_copy(both: Clients, tmp_path: Path) -> None:
    table = protected_table(both.payroll, appends=[persons(1, 2)])
    [file] = data_files(table)
    deletes = TableFiles(folder_of(table), table.schema()).position_deletes([(file.file_path, 0)])
    outside = path_of(table.location()).parents[1] / "home" / "x.parquet"
    outside.parent.mkdir()
    path_of(deletes.file_path).rename(outside)
    named = named_otherwise(deletes, file_path=f"{table.location()}/../../home/x.parquet")
    commit_by_hand(loaded(both.analyst), HandwrittenManifest([named], _DELETES))
    beside = tmp_path / "copies" / "home"
    beside.mkdir(parents=True)

    with pytest.raises(ConfigurationError, match="goes up, or nowhere, in its path"):
        m.relocate(loaded(both.payroll), f"file://{tmp_path}/copies/a/copy")

    assert list(beside.iterdir()) == []


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"content": DataFileContent.POSITION_DELETES, **NOBODY}, "as position deletes and as data"),
        ({"file_format": FileFormat.AVRO}, "as AVRO and as PARQUET"),
        ({"key_metadata": new_key().with_file_length(1000).encode()}, "with two keys"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_verify_and_audit_name_a_file_that_is_named_in_two_ways(catalog: Catalog, fields: dict[str, Any], what: str) -> None:
    table = people(catalog)
    file = of_person(table)
    before = m.verify(table)
    content = _DELETES if "content" in fields else ManifestContent.DATA
    commit_by_hand(table, HandwrittenManifest([named_otherwise(file, **fields)], content))
    forget_history(table)

    [bad] = m.verify(table).bad
    found = {each.where for each in m.audit(table).findings if each.kind == FindingKind.UNOPENED and what in each.message}

    assert before.is_good
    assert bad.location == file.file_path
    assert found == {file.file_path}


MADE_UP: Final = ["foo://x/y.parquet", "/tmp", "/data/a\0b.parquet", ""]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("location", MADE_UP)
def test_verify_names_a_file_under_a_made_up_name_and_looks_at_the_others(both: Clients, location: str, quick: bool) -> None:
    table = protected_table(both.payroll, appends=[persons(1, 2)])
    [file] = data_files(table)
    commit_by_hand(loaded(both.analyst), HandwrittenManifest([named_otherwise(file, file_path=location)]))
    os.truncate(path_of(file.file_path), 1000)

    done = m.verify(table.refresh(), quick=quick)

    assert {bad.location for bad in done.bad} == {location, file.file_path}
    assert all("\n" not in problem.message for bad in done.bad for problem in bad.problems)


@pytest.mark.parametrize("location", MADE_UP)
def test_a_manifest_under_a_made_up_name_hides_no_other(catalog: Catalog, location: str) -> None:
    table = people(catalog)
    before = m.verify(table)
    commit_by_hand(table, HandwrittenManifest([of_person(table)], location=location))

    done = m.verify(table.refresh())
    found = {each.where for each in m.audit(table).findings if each.kind == FindingKind.UNOPENED}

    assert {bad.location for bad in done.bad} == found == {location}
    assert done.files == before.files + 2
    assert not done.is_complete
    assert location in m.describe(table).unread


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("fields", [{"record_count": 2**40}, {"file_size_in_bytes": 1}], ids=["rows", "length"])
def test_a_run_that_goes_on_looks_again_at_a_file_of_which_a_new_entry_says_something_else(
    catalog: Catalog, tmp_path: Path, fields: dict[str, Any], quick: bool
) -> None:
    table, state = people(catalog), tmp_path / "state"
    file = of_person(table)
    with pytest.raises(KeyboardInterrupt):
        m.verify(table, quick=quick, resume_from=state, workers=1, progress=stopping())
    commit_by_hand(table, HandwrittenManifest([named_otherwise(file, **fields)]))

    done = m.verify(table.refresh(), quick=quick, resume_from=state)

    assert done.resumed > 0
    assert [bad.location for bad in done.bad] == [file.file_path]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"content": DataFileContent.EQUALITY_DELETES, "equality_ids": [9], "record_count": 1}, "as data and as deletes"),
        ({"key_metadata": new_key().with_file_length(1000).encode()}, "with two keys"),
    ],
    ids=["deletes", "key"],
)
def test_a_file_of_two_names_is_not_encrypted_again_as_one_of_them(both: Clients, fields: dict[str, Any], what: str) -> None:
    """As deletes it would be passed over, with the values of a column that was declared since under the table's key."""
    people = protected_table(both.payroll, appends=[persons(1, 2)], **{"encryption.column-keys": ""})
    declare(people, "pii: ssn")
    [file] = data_files(people.refresh())
    deletes = "content" in fields
    commit_by_hand(
        loaded(both.analyst), HandwrittenManifest([named_otherwise(file, **fields)], _DELETES if deletes else ManifestContent.DATA)
    )

    with pytest.raises(FormatError, match=what):
        m.reencrypt(people.refresh(), out_of_line=True)


def test_a_data_file_that_is_named_as_deletes_too_is_not_compacted_without_what_it_deletes(both: Clients) -> None:
    people = protected_table(both.payroll, appends=[persons(1, 2)])
    [file] = data_files(people)
    deletes = named_otherwise(file, content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])
    commit_by_hand(loaded(both.analyst), HandwrittenManifest([deletes], _DELETES))

    with pytest.raises(FormatError, match="as data and as deletes"):
        m.compact(people.refresh(), rewrite_all=True)


def test_a_file_that_is_named_in_two_partition_specs_is_not_encrypted_again(both: Clients) -> None:
    people = protected_table(both.payroll, appends=[persons(1, 2)])
    with people.update_spec() as update:
        update.add_field("id", IdentityTransform(), "by_id")
    [file] = data_files(people.refresh())
    commit_by_hand(loaded(both.analyst), HandwrittenManifest([named_otherwise(file, partition=Record(1))], spec_id=1))

    with pytest.raises(FormatError, match="in two partition specs"):
        m.reencrypt(people.refresh())


ODD: Final[dict[str, dict[str, Any]]] = {
    "a bound of no bytes": {"upper_bounds": {1: b""}},
    "a text of no text": {"upper_bounds": {2: b"\xff\xfe"}},
    "a count below zero": {"value_counts": {1: -5}},
    "an offset below zero": {"split_offsets": [-1]},
}


@pytest.mark.parametrize("odd", ODD)
def test_entries_with_odd_numbers_are_format_errors_of_whoever_looks_at_them(catalog: Catalog, odd: str) -> None:
    table = people(catalog)
    commit_by_hand(table, HandwrittenManifest([named_otherwise(of_person(table), **ODD[odd])]))
    table.refresh()

    for look in (table.inspect.files, table.inspect.entries, table.inspect.all_data_files):
        with pytest.raises(FormatError, match="an entry of its manifests has a bound or a number that its column cannot have"):
            look()
    if row_filter := {"a bound of no bytes": "customer_id > 3", "a text of no text": "region = 'north'"}.get(odd):
        with pytest.raises(FormatError, match="has a bound that is not what its column's type is stored as"):
            table.scan(row_filter).count()


def test_bounds_of_a_list_are_a_format_error(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[persons(1, 2)])
    phones = table.schema().find_field("phones").field_id
    commit_by_hand(loaded(both.analyst), HandwrittenManifest([named_otherwise(data_files(table)[0], lower_bounds={phones: b"+49-1"})]))

    for look in (table.refresh().inspect.files, table.inspect.entries):
        with pytest.raises(FormatError, match="an entry of its manifests has a bound or a number that its column cannot have"):
            look()


@pytest.mark.parametrize(
    ("field", "odd", "table_name"),
    [("partition_spec_id", 7, "partitions"), ("partitions", [_SUMMARY], "manifests")],
    ids=["spec", "summary"],
)
def test_a_manifest_list_of_another_partition_spec_is_a_format_error(catalog: Catalog, field: str, odd: Any, table_name: str) -> None:
    table = people(catalog)

    with table.transaction() as transaction:
        producer = cast("EncryptedTransaction", transaction).append_producer(CommitOptions())

        def edited(manifests: list[ManifestFile]) -> list[ManifestFile]:
            for each in manifests:
                each[MANIFEST_FILE_POSITIONS[field]] = odd
            return manifests

        producer.finish_manifests = edited  # type: ignore[method-assign]
        producer.commit_files([])

    with pytest.raises(FormatError, match="its manifest list has a partition spec, or a field of one, that the table does not have"):
        getattr(table.refresh().inspect, table_name)()


READS: Final[dict[str, Callable[[Table], object]]] = {
    "scan": lambda table: table.scan().to_arrow(),
    "count by a filter": lambda table: table.scan("id > 1").count(),
    "dataset": lambda table: cast("EncryptedTable", table).scan().to_arrow_dataset().to_table(),
    "delete": lambda table: table.delete("id = 1"),
    "reencrypt": m.reencrypt,
    "compact": lambda table: m.compact(table, rewrite_all=True),
}


@pytest.mark.parametrize("location", ["foo://x/y.parquet", "/data/a\0b.parquet"], ids=["scheme", "NUL"])
@pytest.mark.parametrize("read", READS)
def test_a_file_under_a_name_that_no_store_has_is_a_format_error_of_whoever_reads_it(both: Clients, read: str, location: str) -> None:
    table = protected_table(both.payroll, appends=[persons(1, 2)])
    commit_by_hand(loaded(both.analyst), HandwrittenManifest([named_otherwise(data_files(table)[0], file_path=location)]))

    with pytest.raises(FormatError, match="cannot be read"):
        READS[read](table.refresh())


def test_a_deletion_vector_under_such_a_name_is_a_format_error_too(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[persons(1, 2)])
    table.delete("id = 1")
    [task] = table.refresh().scan().plan_files()
    [vector] = task.delete_files
    other = {"file_path": "foo://x/y.puffin", "referenced_data_file": task.file.file_path}
    table.manage_snapshots().set_current_snapshot(table.snapshots()[0].snapshot_id).commit()
    commit_by_hand(loaded(both.analyst), HandwrittenManifest([named_otherwise(vector, **other)], _DELETES))

    with pytest.raises(FormatError, match="cannot be read"):
        table.refresh().scan().to_arrow()
