"""A command and the function of its name take the same: who knows one knows the other."""

from __future__ import annotations

import inspect
from typing import Final

import click
import pytest

from tablecrypt import maintenance
from tablecrypt.cli.commands import TABLE_COMMANDS, root

WITHOUT_FUNCTION: Final = {"cat": "table.scan is its function"}
CALLED_OTHERWISE: Final = {"list": "list_tables", "orphans": "remove_orphan_files"}
OF_COMMANDS: Final = {
    *("as_json", "yes", "progress", "quiet"),  # what a terminal is told
    *("html_file", "bundle_file", "force", "since_file", "fail_on"),  # what becomes of an audit
    "certificates",  # what becomes of an erasure
    *("column", "columns"),  # whose functions are rotate_column_keks, rewrap_column_keks and shred_column
    *("location", "key_file", "key_id"),  # inspect: of a file, for which there is parquet.inspect
}
OF_FUNCTIONS: Final = {"target", "catalog", "progress", "now", "listed"}
SPELLED_OTHERWISE: Final = {"use_spark": "runner"}
OF_TERMINALS: Final = {
    "as_json": "json",
    "use_spark": "spark",
    "html_file": "html",
    "bundle_file": "bundle",
    "since_file": "since",
    "row_format": "format",
}
SHORT: Final = {**OF_TERMINALS, "properties": "set"}
SHORT_IN: Final = {"erase": {"row_filter": "where"}, "share": {"row_filter": "where", "to_key_id": "to"}}
"""Rows as SQL says it; compact and reencrypt choose files with --where."""
SEVERAL: Final = {"include", "exclude"}
"""maintenance.on_tables has them."""

COMMANDS: Final = [name for name in TABLE_COMMANDS if name not in WITHOUT_FUNCTION]


def of_command(name: str) -> set[str]:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    taken = {SPELLED_OTHERWISE.get(str(each.name), str(each.name)) for each in command.params}
    return {"table" if each == "source" else each for each in taken}


def of_function(name: str) -> set[str]:
    return set(inspect.signature(getattr(maintenance, CALLED_OTHERWISE.get(name, name.replace("-", "_")))).parameters)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_takes_what_its_function_takes(name: str) -> None:
    taken, given = of_command(name), of_function(name)

    assert given - taken <= OF_FUNCTIONS
    assert taken - given <= OF_COMMANDS | SEVERAL | {"table"}


@pytest.mark.parametrize("name", TABLE_COMMANDS)
def test_an_option_is_spelled_as_its_argument(name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    for option in command.params:
        if isinstance(option, click.Option) and name != "inspect":
            spelled = option.opts[0].removeprefix("--").replace("-", "_")
            short = {**SHORT, **SHORT_IN.get(name, {})}
            assert spelled == short.get(str(option.name), option.name) or f"{spelled}s" == option.name
