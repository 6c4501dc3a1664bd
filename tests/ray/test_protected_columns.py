"""Protected columns in Ray, with and without their keys, and writers that others were faster than."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray

import tablecrypt.ray as tcr
from tablecrypt import load_catalog
from tablecrypt.errors import ColumnKeyDeniedError, ConfigurationError
from tablecrypt.table.protection.writing import StaleWriteError
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.column_principals import NAME, table_of_three
from tests.support.plaintext import CANARY
from tests.support.protected_tables import COLUMN_KEY, OTHER_COLUMN_KEY
from tests.support.tables import TEAM_SCHEMA, encrypted_sql_catalog, ids, memory_catalog, new_table, rows

FILE = "kms.local.key-file"


@dataclass(frozen=True)
class People:
    """The table of column_principals.py as its three clients see it."""

    folder: Path
    payroll: Any
    analyst: Any
    clerk: Any

    def as_seen_by(self, catalog: Any) -> EncryptedTable:
        table: EncryptedTable = catalog.load_table(NAME)
        return table


@pytest.fixture
def people(tmp_path: Path, cluster: Any) -> People:
    catalogs = {who: load_catalog("prod", **properties) for who, properties in table_of_three(tmp_path).items()}
    return People(tmp_path, **catalogs)


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


def test_who_may_use_a_columns_key_reads_it_and_who_may_not_reads_what_the_scan_shows(people: People) -> None:
    table, seen = people.as_seen_by(people.payroll), people.as_seen_by(people.analyst)

    assert by_id(tcr.read_table(table).take_all()) == by_id(table.scan().to_arrow().to_pylist())
    with pytest.raises(ColumnKeyDeniedError, match="'team'"):
        tcr.read_table(seen)
    masked, without = seen.scan(masked="mask"), seen.scan(selected_fields=("id", "note"))
    for scan in (masked, without):
        assert by_id(tcr.read_table(scan).take_all()) == by_id(scan.to_arrow().to_pylist())
    assert {row["team"] for row in tcr.read_table(masked).take_all()} == {None}


def test_who_may_not_read_a_column_does_not_write_it(people: People) -> None:
    more = ray.data.from_arrow(rows(20, 20, TEAM_SCHEMA))

    with pytest.raises(ColumnKeyDeniedError):
        tcr.datasink(people.as_seen_by(people.analyst))
    more.write_datasink(tcr.datasink(people.as_seen_by(people.payroll)))

    assert ids(people.as_seen_by(people.payroll)) == list(range(40))
    assert set(people.as_seen_by(people.analyst).scan(masked="mask").to_arrow().column("team").to_pylist()) == {None}


@pytest.mark.parametrize(
    "options", [{"mode": "append"}, {"mode": "overwrite"}, {"mode": "upsert", "keys": ["id"]}], ids=lambda each: each["mode"]
)
def test_rows_written_before_a_column_was_protected_are_not_committed_after(people: People, options: dict[str, Any]) -> None:
    sink = tcr.datasink(people.as_seen_by(people.payroll), **options)
    now = people.as_seen_by(people.payroll)
    with now.transaction() as transaction:
        transaction.set_properties({"encryption.column-keys": f"{COLUMN_KEY}: team, note"})

    with pytest.raises(StaleWriteError, match="'note'"):
        ray.data.from_arrow(rows(10, 20, TEAM_SCHEMA)).write_datasink(sink)

    assert ids(people.as_seen_by(people.payroll)) == list(range(20))
    assert len(list(people.folder.rglob("*.parquet"))) == 1


def test_a_clerk_with_another_columns_key_sees_and_writes_no_column_of_payrolls(people: People) -> None:
    now = people.as_seen_by(people.payroll)
    with now.transaction() as transaction:
        transaction.set_properties({"encryption.column-keys": f"{COLUMN_KEY}: team; {OTHER_COLUMN_KEY}: note"})
    ray.data.from_arrow(rows(20, 20, TEAM_SCHEMA)).write_datasink(tcr.datasink(people.as_seen_by(people.payroll)))
    seen = people.as_seen_by(people.clerk)

    with pytest.raises(ColumnKeyDeniedError, match="'team'"):
        tcr.read_table(seen)
    with pytest.raises(ColumnKeyDeniedError):
        tcr.datasink(seen)
    own = tcr.read_table(seen.scan(selected_fields=("id", "note"))).take_all()
    assert by_id(own) == [{"id": each, "note": f"{CANARY} {each}"} for each in range(40)]
    assert {row["team"] for row in tcr.read_table(seen.scan(masked="mask")).take_all()} == {None}


def test_two_writers_that_commit_together_are_both_in_the_table(people: People) -> None:
    sinks = [tcr.datasink(people.as_seen_by(people.payroll)) for _ in range(2)]
    more = [ray.data.from_arrow(rows(first, 20, TEAM_SCHEMA)) for first in (20, 40)]

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda each: each[0].write_datasink(each[1]), zip(more, sinks, strict=True)))

    assert ids(people.as_seen_by(people.payroll)) == list(range(60))


def test_keys_of_this_process_alone_are_refused_before_anything_is_sent(tmp_path: Path, cluster: Any) -> None:
    table = new_table(memory_catalog(tmp_path), appends=[rows(0)])

    for call in (tcr.read_table, tcr.datasink):
        with pytest.raises(ConfigurationError, match="memory lives in the driver's process alone"):
            call(table)


def test_credentials_of_the_key_service_are_refused_before_anything_is_sent(tmp_path: Path, aws: AwsServer, cluster: Any) -> None:
    credentials = {"client.access-key-id": "testing", "client.secret-access-key": "not-to-be-sent"}
    table = new_table(encrypted_sql_catalog(tmp_path, aws, credentials), appends=[rows(0)])

    with pytest.raises(ConfigurationError, match=r"client\.secret-access-key.* would be passed on in the clear") as raised:
        tcr.read_table(table)

    assert "not-to-be-sent" not in str(raised.value)
