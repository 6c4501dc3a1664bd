"""What a pin keeps of protected columns, and which changes of them it lets pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pyiceberg.table.update import RemovePropertiesUpdate, SetLocationUpdate, SetPropertiesUpdate

from tablecrypt.errors import FormatError, KeyIdChangedError
from tablecrypt.keys.column_keys import ColumnMask, ColumnPolicy, ProtectedColumn
from tablecrypt_catalog.pins.protected_columns import (
    PinnedColumn,
    StoredColumn,
    changed_columns,
    columns_from,
    merged_columns,
    stored_columns,
    weaker,
)
from tablecrypt_catalog.pins.record import Moves, TableVersion, TrustedTable, moves_of, table_version
from tests.support.bare_metadata import LOCATION, fields, parsed

RENAMED = {1: "ssn", 2: "other"}
MASKS = st.sampled_from(
    [
        ColumnMask(),
        ColumnMask("error"),
        ColumnMask("redact"),
        ColumnMask("hash"),
        ColumnMask("truncate", 4),
        ColumnMask("truncate", 64),
        ColumnMask("constant", "x"),
    ]
)
COLUMNS = st.dictionaries(
    st.integers(1, 4),
    st.builds(
        lambda key, mask, since, names, former, until: PinnedColumn(
            1, key, mask, since, names, former if names is not None else None, until if names is not None and former else None
        ),
        st.sampled_from(["pii", "fin"]),
        MASKS,
        st.none() | st.integers(0, 3),
        st.none() | st.frozensets(st.sampled_from(["ssn", "person.email"])),
        st.sampled_from([None, "old", "fin"]),
        st.none() | st.integers(0, 3),
    ),
).map(lambda found: {field_id: replace(column, field_id=field_id) for field_id, column in found.items()})


@given(COLUMNS)
def test_columns_are_read_back_as_they_were_stored(columns: dict[int, PinnedColumn]) -> None:
    assert columns_from(stored_columns(columns)) == columns


@given(COLUMNS, COLUMNS)
def test_what_passes_reveals_no_more_than_before(before: dict[int, PinnedColumn], now: dict[int, PinnedColumn]) -> None:
    if weaker(before, now) is not None:
        return
    for field_id, column in before.items():
        assert now[field_id].column_key_id == column.column_key_id
        assert now[field_id].mask in (column.mask, ColumnMask(), ColumnMask("error"))
        assert column.names is None or now[field_id].former_key_id in (None, column.former_key_id)
        pinned, until = (merged_columns(before, each)[field_id].former_until for each in (before, now))
        assert until is None or now[field_id].former_key_id is None or pinned is None or until <= pinned
        later = now[field_id].since
        assert later is None or (column.since is not None and later <= column.since)


@given(COLUMNS, COLUMNS)
def test_what_this_client_changes_itself_is_left_out_and_nothing_else(
    before: dict[int, PinnedColumn], now: dict[int, PinnedColumn]
) -> None:
    assert weaker(before, before) is None
    assert weaker(before, now, frozenset(before)) is None
    if (found := weaker(before, now)) is not None:
        others = frozenset(before) - {found[0]}
        assert weaker(before, now, others) == found


def test_a_commit_names_the_columns_whose_properties_it_changes() -> None:
    updates = [
        SetPropertiesUpdate(updates={"encryption.column.2.mask": "null", "owner": "me", "encryption.column-tags": "pii: k"}),
        RemovePropertiesUpdate(removals=["encryption.column.7.since", "encryption.column.x.mask"]),
        SetLocationUpdate(location="s3://b/t"),
    ]
    assert changed_columns(updates) == {2, 7}
    assert moves_of(updates[:2]) == Moves(columns=frozenset({2, 7}))
    assert moves_of(updates[:2])


def test_the_pin_follows_what_passes_and_names_what_does_not() -> None:
    ssn = PinnedColumn(2, "pii")
    pin = TableVersion("uuid-1", "alias/orders", 24, "s3://b/t/metadata/00007-a.metadata.json", None, 5, columns={2: ssn})
    later = replace(pin, metadata_location="s3://b/t/metadata/00008-a.metadata.json")
    more = replace(later, columns={2: ssn, 3: PinnedColumn(3, "fin")})
    table = TrustedTable("db.t", pin)
    assert table.verify_update(more) == more
    assert TrustedTable("db.t", replace(pin, columns={})).verify_update(more) == more
    with pytest.raises(KeyIdChangedError, match=r"db\.t: the column with field id 2 was protected by master key 'pii'.*00008-a"):
        table.verify_update(replace(later, columns={}))
    assert table.verify_update(replace(later, columns={}), moved=Moves(columns=frozenset({2}))) == replace(later, columns={})
    assert table.accept_rollback(replace(later, columns={})) == replace(later, columns={})


@pytest.mark.parametrize("stored", [(0, "pii", "null", None), (2, "", "null", None), (2, "pii", "blur", None)])
def test_a_stored_column_that_cannot_be_is_an_error(stored: tuple[int, str, str, None]) -> None:
    with pytest.raises(FormatError, match="protected column that cannot be read"):
        columns_from([stored])


def test_columns_of_pins_from_before_are_read() -> None:
    rows = TypeAdapter(list[StoredColumn]).validate_json(
        '[[2, "pii", "null", 3], [4, "pii", "null", null, ["a"], "old"], [5, "pii", "null", null, ["b"], "old", 7]]'
    )
    found = columns_from(rows)
    assert (found[2].names, found[2].former_key_id, found[2].since) == (None, None, 3)
    assert (found[4].names, found[4].former_key_id, found[4].former_until) == (frozenset({"a"}), "old", None)
    assert found[5].former_until == 7


def test_a_name_that_is_pinned_is_taken_by_no_column_that_metadata_shows_unprotected() -> None:
    raw = fields([], [], **ColumnPolicy.of([ProtectedColumn(2, "pii")]).to_properties())
    raw["schemas"][0]["fields"] = [
        {"id": field_id, "name": name, "type": "string", "required": False} for field_id, name in RENAMED.items()
    ]
    seen = table_version(parsed(raw), f"{LOCATION}/metadata/2-b.metadata.json", "hash")
    pin = replace(seen, columns={2: replace(seen.columns[2], names=frozenset({"ssn"}))})

    with pytest.raises(KeyIdChangedError, match="column 'ssn', which is not under 'pii', takes it"):
        TrustedTable("prod.db.t", pin).verify_update(replace(seen, metadata_location=f"{LOCATION}/metadata/3-c.metadata.json"))
