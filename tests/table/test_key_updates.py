"""Changes of `encryption-keys` that follow one another: applied at once, they do what they do one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import SetPropertiesUpdate, TableUpdate, update_table_metadata

from tablecrypt.errors import TablecryptError
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.updates import added_keys, applied, removed_keys, replaced_keys
from tests.support.tables import metadata_of, new_table

KEYS = [f"key {number}" for number in range(4)]


@pytest.fixture
def metadata(catalog: Catalog) -> EncryptedTableMetadata:
    return metadata_of(new_table(catalog, "db.t", appends=[pa.table({"id": [1]})]))


changes = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "replace"]), st.sampled_from([*KEYS, "kek"]), st.integers(0, 1)), max_size=12
)


def _updates(metadata: EncryptedTableMetadata, made: list[tuple[str, str, int]]) -> tuple[TableUpdate, ...]:
    """Updates of keys under the table's KEK, and of that itself."""
    kek, listed = metadata.encryption_keys
    ids = {each: each for each in KEYS} | {"kek": kek.key_id}
    updates: list[TableUpdate] = []
    for change, name, value in made:
        entry = (kek if name == "kek" else listed).model_copy(update={"key_id": ids[name]})
        if value:
            entry = entry.model_copy(update={"properties": {**(entry.properties or {}), "value": "1"}})
        make = {"add": added_keys, "replace": replaced_keys}.get(change)
        updates += removed_keys([entry.key_id]) if make is None else make([entry])
    return tuple(updates)


def _outcome(apply: Any, metadata: EncryptedTableMetadata, updates: tuple[TableUpdate, ...]) -> object:
    try:
        changed = apply(metadata, updates)
    except (TablecryptError, CommitFailedException) as error:
        return type(error), str(error)
    return changed.encryption_keys


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(made=changes)
def test_changes_at_once_do_what_they_do_one_by_one(metadata: EncryptedTableMetadata, made: list[tuple[str, str, int]]) -> None:
    assert metadata.encryption_keys[0].is_wrapped_by_kms
    updates = _updates(metadata, made)
    assert _outcome(applied, metadata, updates) == _outcome(update_table_metadata, metadata, updates)


def test_other_updates_stay_where_they_are_among_them(metadata: EncryptedTableMetadata) -> None:
    first, second = (_updates(metadata, [("add", name, 0)]) for name in KEYS[:2])
    noted = [SetPropertiesUpdate(updates={"note": note}) for note in ("1", "2")]
    changed = applied(metadata, (*first, noted[0], *second, *removed_keys([KEYS[0]]), noted[1]))

    assert isinstance(changed, EncryptedTableMetadata)
    assert [each.key_id for each in changed.encryption_keys[2:]] == [KEYS[1]]
    assert changed.properties["note"] == "2"
