"""docs/cli.md says what the command's help says."""

from __future__ import annotations

from tablecrypt.cli.commands import COMMANDS
from tests.support.cli_reference import PART, reference


def test_the_page_is_what_the_help_says() -> None:
    assert PART.read() == reference(), "run python -m tests.support.cli_reference"


def test_the_page_has_every_command() -> None:
    page = PART.path.read_text(encoding="utf-8")

    assert all(f"\n### {name}\n" in page for name in COMMANDS)
