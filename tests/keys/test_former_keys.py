"""A former master key opens the files up to its end, and an end that is no sequence number is an error that names the property."""

from __future__ import annotations

from typing import Final

import pytest

from tablecrypt.errors import ConfigurationError, KeyIdChangedError, TamperedFileError
from tablecrypt.keys.column_keys import ColumnPolicy, ProtectedColumn
from tablecrypt.keys.former_keys import FormerKey, sequence_number_in
from tablecrypt.keys.key_ring import KeyRing
from tablecrypt.keys.table_column_keys import TableColumnKeys
from tests.keys.test_mask_keys import maker
from tests.support.bound_schemas import OF_TEXT

UNTIL = "encryption.column.2.former-until"
SINCE = "encryption.column.2.since"


@pytest.mark.parametrize(
    ("until", "sequence_number", "opens"),
    [(41, 0, True), (41, 41, True), (41, 42, False), (41, None, False), (None, 0, False), (0, 0, True)],
)
def test_a_file_is_opened_up_to_the_end_alone(until: int | None, sequence_number: int | None, opens: bool) -> None:
    assert FormerKey("old", until).opens(sequence_number) is opens


@pytest.mark.parametrize("text", ["", "-1", "+1", " 1", "1.0", "1e3", "x", "٤١", "²", "9" * 19])
def test_what_is_no_sequence_number_is_refused_by_the_propertys_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{UNTIL} is .*it must be a sequence number of the table"):
        sequence_number_in(UNTIL, text)


@pytest.mark.parametrize("text", ["0", "41", "9" * 18])
def test_a_sequence_number_is_read_as_it_stands(text: str) -> None:
    assert sequence_number_in(SINCE, text) == int(text)


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(ConfigurationError, match=f"^{SINCE} is '{'7' * 24}';"):
        sequence_number_in(SINCE, "7" * 1000)


SSN: Final = 2
BEFORE: Final = ColumnPolicy.of([ProtectedColumn(SSN, "pii")])


def unwrapped(until: int | None, sequence_number: int | None) -> bool:
    """Whether a file under the former master key opens to the DEK that it was written with."""
    made = maker()
    column = TableColumnKeys(made, BEFORE, KeyRing()).generate([SSN], b"file")[SSN]
    ring = KeyRing().with_others(made.pending.new_entries(KeyRing(), [b"file"]))
    now = ColumnPolicy.of([ProtectedColumn(SSN, "fin")], {SSN: FormerKey("pii", until)})
    return TableColumnKeys(maker(), now, ring).unwrap(SSN, column.key_metadata(OF_TEXT), b"file", OF_TEXT, sequence_number) == column.secret


def test_a_file_from_before_opens() -> None:
    assert unwrapped(41, 41)


@pytest.mark.parametrize(("sequence_number", "told"), [(42, "42"), (None, "none")])
def test_a_younger_file_is_told_with_its_number_and_where_it_is(sequence_number: int | None, told: str) -> None:
    with pytest.raises(TamperedFileError) as error:
        unwrapped(41, sequence_number)

    assert OF_TEXT.location in str(error.value)
    assert str(error.value).endswith(
        f"under the former master key 'pii', which counts for files up to sequence number 41, and the file has {told}: somebody who may "
        "use that key has made it, or an engine that knows nothing of protected columns appended a file from before once more"
    )


def test_without_an_end_no_file_opens_and_the_missing_property_is_named() -> None:
    with pytest.raises(KeyIdChangedError) as error:
        unwrapped(None, 1)

    assert str(error.value).startswith(OF_TEXT.location)
    assert str(error.value).endswith(
        f"{UNTIL} is missing. Restore it, or have somebody with the column's key declare the column again (encryption.column-keys)"
    )
