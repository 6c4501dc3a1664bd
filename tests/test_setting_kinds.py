"""Switches, choices and numbers take their own words and nothing else, whichever property or option they are of."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError
from tablecrypt.iceberg_properties import OF_TABLES
from tablecrypt.setting_kinds import Choice, Switch, WholeNumber, check_option_names, did_you_mean, one_of, truth, whole_number

REPOSITORY = Path(__file__).parents[1]
ON = ("true", "yes", "on", "1")
OFF = ("false", "no", "off", "0")
SLIPS = ("ture", "y", "t", "n", "f", "enabled", "True ", "\ttrue", "1.0", "01", "+1", "", "None", "null")
DECLARED = (*names.registered(), *OF_TABLES)
SWITCHES = [each for each in DECLARED if isinstance(each, Switch)]
CHOICES = [each for each in DECLARED if isinstance(each, Choice)]
NUMBERS = [each for each in DECLARED if isinstance(each, WholeNumber)]


def named(each: Switch | Choice | WholeNumber) -> str:
    return each.name


def in_any_case(words: tuple[str, ...]) -> list[str]:
    return [form for word in words for form in (word, word.upper(), word.capitalize(), word.swapcase())]


def test_there_are_switches_choices_and_numbers() -> None:
    assert {"encryption.required", "encryption.column-guard", "tablecrypt.spark.require-encrypted-rpc", "gc.enabled"} <= {
        *map(named, SWITCHES)
    }
    assert {"encryption.kms-type", "encryption.masked-reads", "tablecrypt.spark.executor-keys"} <= {*map(named, CHOICES)}
    assert {"encryption.kms.cache-ttl-ms", "client.assume-role.timeout-sec"} <= {*map(named, NUMBERS)}


@pytest.mark.parametrize("switch", SWITCHES, ids=named)
def test_eight_words_in_any_case_set_a_switch(switch: Switch) -> None:
    for words, state in ((ON, True), (OFF, False)):
        for word in (*in_any_case(words), state, int(state)):
            assert switch.is_true({switch.name: word}) is state
            switch.check(switch.name, word)


@pytest.mark.parametrize("switch", SWITCHES, ids=named)
@given(text=st.one_of(st.text(), st.sampled_from(SLIPS)))
def test_no_other_word_sets_a_switch(switch: Switch, text: str) -> None:
    if text.lower() in {*ON, *OFF}:
        return
    with pytest.raises(ConfigurationError) as refused:
        switch.check(switch.name, text)
    assert switch.name in str(refused.value)
    assert "\n" not in str(refused.value)
    if switch.where_unreadable is None:
        with pytest.raises(ConfigurationError):
            switch.is_true({switch.name: text})
    else:
        assert switch.is_true({switch.name: text}) is switch.where_unreadable


@pytest.mark.parametrize("value", [None, 1.0, 2, -1, [], ["true"], {"true": "true"}, b"true"])
def test_a_value_of_another_type_sets_no_switch(value: object) -> None:
    with pytest.raises(ConfigurationError, match="it must be true or false"):
        truth("encryption.required", value)


@pytest.mark.parametrize("choice", CHOICES, ids=named)
@given(text=st.text())
def test_a_choice_is_one_of_its_words(choice: Choice, text: str) -> None:
    for word in choice.choices:
        for form in in_any_case((word,)):
            assert choice.chosen({choice.name: form}) == word
    if text.lower() in {each.lower() for each in choice.choices} or (choice.may_be_empty and text == ""):
        return
    with pytest.raises(ConfigurationError, match="it must be"):
        choice.check(choice.name, text)
    with pytest.raises(ConfigurationError, match="it must be"):
        choice.chosen({choice.name: text})


@pytest.mark.parametrize("choice", CHOICES, ids=named)
def test_a_choice_that_nobody_makes_is_the_default(choice: Choice) -> None:
    assert choice.chosen({}) == (choice.default or "")
    assert choice.default is None or choice.default in choice.choices


@pytest.mark.parametrize("number", NUMBERS, ids=named)
@given(text=st.text())
def test_a_number_takes_digits_alone(number: WholeNumber, text: str) -> None:
    if text.isascii() and text.isdigit() and number.least <= int(text) <= number.most:
        return
    with pytest.raises(ConfigurationError, match="it must be a whole number"):
        number.check(number.name, text)


def test_a_number_has_a_least_and_a_greatest_value() -> None:
    assert whole_number("workers", "1", least=1) == 1
    with pytest.raises(ConfigurationError, match="workers is '0'; it must be a whole number of at least 1"):
        whole_number("workers", "0", least=1)
    assert whole_number("workers", "9", 1, most=9) == 9
    with pytest.raises(ConfigurationError, match="workers is '10'; it must be a whole number from 1 to 9"):
        whole_number("workers", "10", 1, most=9)
    for above in (2**63, 10**30):
        with pytest.raises(ConfigurationError, match=f"workers is '{above}'; it must be a whole number from 0 to {2**63 - 1}$"):
            whole_number("workers", above)


def test_a_word_that_comes_near_is_suggested() -> None:
    with pytest.raises(ConfigurationError, match=r"mode is 'hsah'; it must be none, hash or range"):
        one_of("mode", "hsah", ("none", "hash", "range"))
    assert did_you_mean("merge-on-raed", ("copy-on-write", "merge-on-read")) == ". Did you mean merge-on-read?"
    assert did_you_mean("x", ("copy-on-write",)) == ""


def test_a_value_is_shown_short_and_in_one_line() -> None:
    with pytest.raises(ConfigurationError) as refused:
        truth("encryption.required", "no\n" * 1000)
    assert len(str(refused.value)) < 300
    assert "\n" not in str(refused.value)


def test_misspelt_options_are_refused_and_those_of_others_are_not() -> None:
    known = ("isolation-level", "mergeschema")
    check_option_names(("isolation-level", "mergeschema", "path", "compression"), known, "the write option")
    with pytest.raises(ConfigurationError, match=r"the write option 'isolation-levle' is not known\. Did you mean isolation-level"):
        check_option_names(("isolation-levle",), known, "the write option")


NO_SWITCHES_OF_OURS = {
    "tablecrypt/setting_kinds.py",
    # Spark's own settings, of which Spark takes true and false alone.
    "tablecrypt/spark/network.py",
    "tablecrypt/spark/broadcast_keys.py",
    # Expressions of a server's filter, and literals of Spark SQL.
    "tablecrypt/table/restrictions/row_filter.py",
    # PyIceberg's own properties of its SQL catalog.
    "catalog/tablecrypt_catalog/_pyiceberg/sql.py",
    "catalog/tablecrypt_catalog/sql.py",
    # An option of scans that no user has: this package sets it.
    "tablecrypt/table/planning/planner.py",
}


def test_no_other_module_reads_a_switch_by_itself() -> None:
    """Words are compared with true and false in one place."""
    found = set()
    for source in [*(REPOSITORY / "tablecrypt").rglob("*.py"), *(REPOSITORY / "catalog").rglob("*.py")]:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if _compares_with_a_word(node) or (isinstance(node, ast.Name) and node.id in {"strtobool", "property_as_bool"}):
                found.add(str(source.relative_to(REPOSITORY)))
    assert found <= NO_SWITCHES_OF_OURS


def _compares_with_a_word(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and any(
        isinstance(each, ast.Constant) and each.value in ("true", "false") for each in ast.walk(node)
    )
