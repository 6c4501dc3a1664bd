"""Every command line that a page shows is one that the command takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from tablecrypt.cli.commands import root

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK: Final = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
PICTURE: Final = re.compile(r"!\[[^\]]+\]\(([^):]+)\)")
ENDS_A_COMMAND: Final = frozenset({"|", "||", "&&", ">", ";", "&"})


def command_lines(page: str) -> Iterator[list[str]]:
    """The arguments of each `tablecrypt …` in the page's code blocks, without the patterns of the reference."""
    for block in BLOCK.findall(page):
        for line in block.replace("\\\n", " ").splitlines():
            text = line.strip().removeprefix("$ ")
            if text.startswith("tablecrypt ") and "[OPTIONS]" not in text:
                yield arguments_of(text)


def arguments_of(line: str) -> list[str]:
    words = shlex.split(line, comments=True)[1:]
    end = next((at for at, word in enumerate(words) if word in ENDS_A_COMMAND), len(words))
    return words[:end]


def parse(arguments: list[str]) -> None:
    """Take a command line as far as its options and arguments; a file that it names need not be there."""
    with root.make_context("tablecrypt", list(arguments)) as context:
        name, command, rest = root.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        try:
            command.make_context(name, rest, parent=context).close()
        except click.BadParameter as wrong:
            if wrong.param is None or not isinstance(wrong.param.type, click.Path):
                raise


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_command_takes_every_line_that_a_page_shows(page: Path) -> None:
    for arguments in command_lines(page.read_text(encoding="utf-8")):
        try:
            parse(arguments)
        except click.exceptions.Exit:
            continue
        except click.ClickException as wrong:
            pytest.fail(f"tablecrypt {shlex.join(arguments)}: {wrong.format_message()}")


@pytest.mark.parametrize(
    "line", ["tablecrypt audti db.t", "tablecrypt audit --html", "tablecrypt audit --nothing", "tablecrypt inspect | head"]
)
def test_a_line_that_the_command_does_not_take_is_seen(line: str) -> None:
    with pytest.raises(click.ClickException):
        parse(arguments_of(line))


def test_pictures_are_there_and_small() -> None:
    pictures = {(page.parent / picture).resolve() for page in PAGES for picture in PICTURE.findall(page.read_text(encoding="utf-8"))}

    assert (ROOT / "docs" / "images" / "audit.png").resolve() in pictures
    assert not [each for each in pictures if not each.is_file() or each.stat().st_size > 150_000]


@pytest.mark.parametrize(("folder", "left_out"), [("benchmarks", "_"), ("fuzz", "harness")])
def test_every_script_of_a_folder_has_a_row_in_its_readme(folder: str, left_out: str) -> None:
    rows = re.findall(r"^\| `?(\w+\.py)`? \|", (ROOT / folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    scripts = [path.name for path in (ROOT / folder).glob("*.py") if not path.name.startswith(left_out)]

    assert sorted(rows) == sorted(scripts)


def test_the_pages_show_commands() -> None:
    shown = {path.name for path in PAGES if list(command_lines(path.read_text(encoding="utf-8")))}

    assert {"cli.md", "README.md"} <= shown
