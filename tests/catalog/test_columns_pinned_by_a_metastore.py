"""Protected columns in the parameters of a table's entry in Hive and Glue: another engine that commits protects no column less unseen.

The other engine writes its metadata file, and the entry as Iceberg Java does: with the parameters that it knows, and those of tablecrypt as
they were. Who reads may not use the columns' keys, so that nothing else tells him.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from hive_metastore.ttypes import EnvironmentContext

from tablecrypt.errors import FormatError, KeyIdChangedError
from tablecrypt.table.canonical_metadata import metadata_hash
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tablecrypt_catalog.pins.hive import METADATA_HASH, PROTECTED_COLUMNS
from tests.support.edited_metadata import put_as_next_version, read_metadata
from tests.support.memory_metastore import MemoryHiveCatalog
from tests.support.protected_tables import SALARY, SSN, Clients, clients, declare, loaded, protected_table

ROWS = pa.table({"id": [1, 2], "ssn": ["SSN-0001", "SSN-0002"]})
PREFIX = f"encryption.column.{SSN}"
Document = dict[str, Any]


@pytest.fixture
def both(tmp_path: Path) -> Clients:
    return clients(tmp_path, catalog_class=cast("type[EncryptedSqlCatalog]", MemoryHiveCatalog))


@pytest.fixture
def people(both: Clients) -> EncryptedTable:
    table = protected_table(both.payroll, appends=[ROWS], **{"encryption.column-keys": "fin: ssn", "encryption.column-mask.ssn": "hash"})
    declare(table, "pii: ssn; fin: salary")
    return loaded(both.payroll)


def parameters(both: Clients, change: Callable[[dict[str, str]], object] | None = None) -> dict[str, str]:
    metastore = MemoryHiveCatalog.metastores[both.payroll.properties["warehouse"]]
    entry = metastore.get_table("db", "people")
    if change is not None:
        change(entry.parameters)
        metastore.alter_table_with_environment_context("db", "people", entry, EnvironmentContext())
    return dict(entry.parameters)


def commit_as_java_does(both: Clients, change: Callable[[Document], object]) -> None:
    table = loaded(both.payroll)
    document = read_metadata(table)
    change(document)
    forged = put_as_next_version(table, document)
    path = forged.rename(forged.with_name(forged.name.replace("forged", "00000000-0000-4000-8000-000000000000")))
    new = {"metadata_location": path.as_uri(), METADATA_HASH: metadata_hash(path.read_bytes()) or ""}
    parameters(both, lambda stored: stored.update(new))


def test_the_entry_pins_protected_columns_with_every_commit(both: Clients, people: EncryptedTable) -> None:
    assert json.loads(parameters(both)[PROTECTED_COLUMNS]) == [
        [SSN, "pii", "hash", None, ["ssn"], "fin", 1],
        [SALARY, "fin", "null", 1, ["salary"], None, None],
    ]
    with people.update_schema() as change:
        change.rename_column("ssn", "social")
    loaded(both.payroll).append(pa.table({"id": [3], "social": ["SSN-0003"]}))
    assert json.loads(parameters(both)[PROTECTED_COLUMNS])[0][4] == ["social", "ssn"]


def properties(**changed: str | None) -> Callable[[Document], object]:
    def change(document: Document) -> None:
        kept = {**document["properties"], **{f"{PREFIX}.{name.replace('_', '-')}": value for name, value in changed.items()}}
        document["properties"] = {name: value for name, value in kept.items() if value is not None}

    return change


WEAKER: dict[str, tuple[Callable[[Document], object], str]] = {
    "mask": (properties(mask="truncate(64)"), r"is masked by truncate\(64\) now"),
    "key": (properties(key_id="fin", former_key_id="pii"), "is under 'fin' now"),
    "protection": (properties(key_id=None, mask=None, former_key_id="pii"), "is not protected now"),
    "since": (properties(since="9"), "up to sequence number 9 now"),
    "a former key for longer": (properties(former_until="9"), "'fin' in files up to sequence number 9 now, which was 1 before"),
}


@pytest.mark.parametrize("change", WEAKER)
def test_an_engine_that_protects_a_column_less_is_found_out(both: Clients, people: EncryptedTable, change: str) -> None:
    make, said = WEAKER[change]
    before = loaded(both.analyst)
    commit_as_java_does(both, make)
    for use in (lambda: loaded(both.analyst), before.refresh):
        with pytest.raises(KeyIdChangedError, match=rf"db\.people: the column with field id {SSN} .*{said}.*register the table again"):
            use()


def test_what_the_entry_does_not_say_is_trusted_and_said_by_the_next_commit(both: Clients, people: EncryptedTable) -> None:
    """An entry of before: what another engine has committed passes, as it does at first sight."""
    parameters(both, lambda stored: stored.pop(PROTECTED_COLUMNS))
    commit_as_java_does(both, properties(mask="truncate(4)"))
    loaded(both.analyst)
    declare(loaded(both.payroll), ssn="redact")
    assert json.loads(parameters(both)[PROTECTED_COLUMNS])[0][:3] == [SSN, "pii", "redact"]


def test_an_engine_that_protects_more_or_changes_something_else_is_not(both: Clients, people: EncryptedTable) -> None:
    commit_as_java_does(both, properties(mask="null", former_key_id=None, former_until=None))
    commit_as_java_does(both, lambda document: document["properties"].update(owner="java"))
    assert loaded(both.analyst).properties["owner"] == "java"


def test_a_table_that_is_registered_again_is_pinned_as_it_is(both: Clients, people: EncryptedTable) -> None:
    commit_as_java_does(both, properties(mask="null", since="9"))
    location = parameters(both)["metadata_location"]
    both.payroll.register_table("db.again", location)
    assert both.analyst.load_table("db.again").metadata_location == location


@pytest.mark.parametrize("stored", ["{", '[[2, "pii"]]', '[[0, "pii", "null", null]]'])
def test_a_parameter_that_cannot_be_read_is_an_error_that_names_it(both: Clients, people: EncryptedTable, stored: str) -> None:
    parameters(both, lambda found: found.update({PROTECTED_COLUMNS: stored}))
    with pytest.raises(FormatError, match=r"cannot be read"):
        loaded(both.analyst)
