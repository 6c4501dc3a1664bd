"""Text of others is shown as one line that commands no terminal and hides nothing; JSON means the same as before."""

from __future__ import annotations

import json
import shlex
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.printable import bytes_shown, json_printable, printable, shell_word, sql_string

HOSTILE = [
    "\x1b[2K\x1b[1A",
    "\x9b2J",
    "\x1b]0;title\x07",
    "a\rb",
    "a\nb",
    "\u202egpj.exe",
    "\u2066x\u2069",
    "\u200b",
    "\u2028",
    "\ud800",
    "\x7f",
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_nothing_that_commands_a_terminal_is_left(hostile: str) -> None:
    shown = printable(hostile)
    assert not any(unicodedata.category(each).startswith(("C", "Zl", "Zp")) for each in shown)
    assert "\\" in shown


@pytest.mark.parametrize("unseen", [*"\u034f\u115f\u1160\u17b4\u180b\u180e\u180f\u2800\u3164\ufe0f\uffa0\U000e0100"])
def test_two_names_that_look_alike_are_told_apart(unseen: str) -> None:
    for shown in (printable(f"ssn{unseen}"), json_printable(json.dumps(f"ssn{unseen}", ensure_ascii=False))):
        assert unseen not in shown
        assert "\\" in shown


@given(st.text(alphabet="ab '\"\\$`;|&\n"))
def test_a_word_of_a_command_line_is_one_word_whatever_it_says(text: str) -> None:
    assert shlex.split(f"tablecrypt orphans --delete-below {shell_word(text)} --yes") == [
        "tablecrypt",
        "orphans",
        "--delete-below",
        text,
        "--yes",
    ]


def test_a_string_of_sql_ends_at_its_end() -> None:
    assert sql_string("a'), b('\\") == r"'a\'), b(\'\\'"


@pytest.mark.parametrize(("length", "shown"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (2_345_678, "2.35 MB"), (10**18, "1e+03 PB")])
def test_lengths_have_three_digits(length: int, shown: str) -> None:
    assert bytes_shown(length) == shown


def test_words_of_any_language_stay() -> None:
    for words in ("orders", "заказы", "注文", "naïve", "a\u0301", "\N{SNOWMAN}"):
        assert printable(words) == words


@given(st.text())
def test_json_means_the_same(value: str) -> None:
    shown = json_printable(json.dumps(value, ensure_ascii=False))
    assert json.loads(shown) == value
    assert not any(unicodedata.category(each) in ("Cc", "Cf") for each in shown if ord(each) > 0x7E)


def test_the_command_prints_lines_in_one_place() -> None:
    direct = {
        path.name
        for path in Path("tablecrypt/cli").glob("*.py")
        if "click.echo(" in path.read_text(encoding="utf-8") or "print(" in path.read_text(encoding="utf-8").replace("_print(", "")
    }
    assert direct == {"_output.py", "_framework.py", "demo.py"}, "beside lines, the question, and the demonstration's own table"
