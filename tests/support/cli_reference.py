"""The reference of docs/cli.md, made from the command itself: `python -m tests.support.cli_reference` writes it into the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from tablecrypt.cli._framework import DocumentedCommand
from tablecrypt.cli.commands import OTHER_COMMANDS, TABLE_COMMANDS, root
from tablecrypt.cli.main import INTERRUPTED, REFUSED, TERMINATED, UNREAD
from tests.support.pages import MadePart

PART: Final = MadePart("cli.md", "commands")
SHARED_CODES: Final = (0, REFUSED, INTERRUPTED, UNREAD, TERMINATED)


def reference() -> str:
    """What every command does, takes and answers, as Markdown."""
    return "\n".join(line for names in (TABLE_COMMANDS, OTHER_COMMANDS) for name in names for line in _section(name)).rstrip() + "\n"


def _section(name: str) -> Iterator[str]:
    command = root.get_command(click.Context(root), name)
    assert isinstance(command, DocumentedCommand)
    arguments = [each.metavar or str(each.name).upper() for each in command.params if isinstance(each, click.Argument)]
    yield from (f"### {name}", "", "```", " ".join(("tablecrypt", name, "[OPTIONS]", *arguments)), "```", "")
    for paragraph in (command.help or "").split("\n\n"):
        yield from (" ".join(paragraph.split()), "")
    options = [each for each in command.params if isinstance(each, click.Option)]
    if options:
        yield from ("| option | meaning |", "|---|---|", *(_row(option) for option in options), "")
    for purpose, line in command.examples:
        yield from (f"{purpose}:", "", "```", line, "```", "")
    if command.needs:
        yield from (f"Needs: {command.needs}", "")
    codes = [f"{code}: {meaning}" for code, meaning in command.codes.items() if code not in SHARED_CODES]
    if codes:
        yield from (f"Exit code {'; '.join(codes)}.", "")


def _row(option: click.Option) -> str:
    """One option. Not as click shows it, which differs between its versions."""
    value = "" if option.is_flag else f" {option.metavar or _values(option)}"
    default = f" Default: {option.default}." if option.show_default else ""
    required = " Required." if option.required else ""
    return f"| `{', '.join(option.opts)}{value}` | {option.help or ''}{default}{required} |"


def _values(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return " or ".join(str(getattr(each, "value", each)) for each in option.type.choices)
    return {"integer": "N", "integer range": "N", "float": "X", "float range": "X"}.get(option.type.name, option.type.name.upper())


if __name__ == "__main__":
    PART.write(reference())
