"""A former master key opens the files up to its end, and an end that is no sequence number is an error that names the property."""

from __future__ import annotations

import pytest

from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.former_keys import FormerKey, sequence_number_in

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
