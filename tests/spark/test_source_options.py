"""Options of format("tablecrypt"): each takes its own words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.source.source_options import SourceOptions

TABLE = {"table": "prod.db.t"}
SWITCHES = ("skip-overwrite-snapshots", "skip-delete-snapshots")
ON = ("true", "yes", "on", "1")
OFF = ("false", "no", "off", "0")


@pytest.mark.parametrize("name", SWITCHES)
def test_eight_words_in_any_case_set_a_switch(name: str) -> None:
    for words, state in ((ON, True), (OFF, False)):
        for word in (form for each in words for form in (each, each.upper(), each.capitalize())):
            rules = SourceOptions.of({**TABLE, name: word}).rules
            assert {rules.skip_overwrites, rules.skip_deletes} == {state, False}


@pytest.mark.parametrize("name", SWITCHES)
@given(text=st.text())
def test_no_other_word_sets_a_switch(name: str, text: str) -> None:
    if text.lower() in {*ON, *OFF}:
        return
    with pytest.raises(ConfigurationError, match=f"option {name} is"):
        SourceOptions.of({**TABLE, name: text})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("masked", "masks", "it must be mask or error"),
        ("masked", "", "it must be mask or error"),
        ("partition-overwrite-mode", "dynamc", "it must be static or dynamic. Did you mean dynamic"),
        ("max-files-per-batch", "0", "it must be a whole number of at least 1"),
        ("max-snapshots-per-batch", "many", "it must be a whole number of at least 1"),
        ("skip-delete-snapshot", "true", "Did you mean skip-delete-snapshots"),
        ("tabel", "x", "Did you mean table"),
        ("catalog.encryption.kms-impl", "os.system", "names code to import beside the driver"),
        ("catalog.Py-IO-Impl", "os.system", "names code to import beside the driver"),
    ],
)
def test_what_is_none_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        SourceOptions.of({**TABLE, name: value})


def test_choices_are_taken_in_any_case() -> None:
    options = SourceOptions.of({**TABLE, "masked": "Mask", "partition-overwrite-mode": "DYNAMIC"})
    assert options.masked == "mask"
    assert options.dynamic_overwrite
