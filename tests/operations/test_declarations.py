"""Each operation of tablecrypt.maintenance is declared once, and says of its options what its signature says of its parameters."""

from __future__ import annotations

import datetime as dt
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import pytest

from tablecrypt import maintenance
from tablecrypt.operations import OF_COMMANDS, OPERATIONS, inspecting, keys, removal, rewriting, sharing
from tablecrypt.operations.declaration import Operation

HELPERS: Final = {"changes_since", "doctor_without_catalog", "on_tables", "write_evidence"}
"""Functions that are parts of an operation's command."""
ONLY_IN_COMMANDS: Final = {
    "rotate_kek": {"include", "exclude", "columns"},
    "rewrap": {"include", "exclude", "columns"},
    "verify": {"include", "exclude"},
    "audit": {"html_file", "bundle_file", "force", "since_file", "fail_on"},
    "inspect": {"location"},
    "erase": {"certificates"},
}
"""Options that no parameter is: which tables, which of two operations, and files that are written of a result."""
KINDS: Final[Mapping[str, type]] = {"N": int, "BYTES": int, "ID": int, "[16|24|32]": int, "X": float, "MOMENT": dt.datetime, "": bool}
NAMES: Final = sorted(OF_COMMANDS)
PERMISSIONS: Final = Path(__file__).parents[2] / "docs" / "how-to" / "permissions.md"


def functions_of(command: str) -> list[Any]:
    return [getattr(maintenance, each.name) for each in OPERATIONS.values() if each.command == command]


def parameters_of(command: str) -> dict[str, tuple[inspect.Parameter, Any]]:
    """The parameters of a command's operations with their types; those of the first have precedence."""
    found = {}
    for function in reversed(functions_of(command)):
        hints = get_type_hints(function)
        found.update({name: (each, hints[name]) for name, each in inspect.signature(function).parameters.items()})
    return found


def kinds_in(kind: Any) -> list[Any]:
    return [each for each in (get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)) if each is not NoneType]


def test_every_operation_has_one_declaration() -> None:
    declared = [each.name for part in (inspecting, keys, rewriting, sharing, removal) for each in part.OPERATIONS]
    functions = {name for name in maintenance.__all__ if inspect.isfunction(getattr(maintenance, name))}

    assert sorted(declared) == sorted(functions - HELPERS)
    assert list(OPERATIONS) == declared


def test_an_operation_without_help_is_part_of_another_ones_command() -> None:
    assert {each.command for each in OPERATIONS.values() if not each.help} <= OF_COMMANDS.keys()
    assert [each.command for each in OPERATIONS.values() if each.help] == list(OF_COMMANDS)


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_a_parameter_or_of_the_command_alone(name: str) -> None:
    declared = OF_COMMANDS[name]

    assert declared.options.keys() - parameters_of(name).keys() == ONLY_IN_COMMANDS.get(declared.name, set())


@pytest.mark.parametrize(
    ("name", "option"), [(name, option) for name in NAMES for option in OF_COMMANDS[name].options if option in parameters_of(name)]
)
def test_an_option_takes_what_its_parameter_takes(name: str, option: str) -> None:
    declared, (parameter, kind) = OF_COMMANDS[name].options[option], parameters_of(name)[option]
    several = [each for each in kinds_in(kind) if get_origin(each) is not None]
    taken = kinds_in(get_args(several[0])[0]) if several else kinds_in(kind)

    assert declared.is_repeatable == bool(several)
    assert KINDS.get(declared.value, str) in taken
    assert declared.default in (None, parameter.default)
    assert declared.value or parameter.default is False, "a flag that is not given is passed on as False"


@pytest.mark.parametrize("name", NAMES)
def test_what_an_operation_cannot_do_without_is_required(name: str) -> None:
    declared = OF_COMMANDS[name]
    _, *parameters = inspect.signature(getattr(maintenance, declared.name)).parameters.values()
    needed = {each.name for each in parameters if each.default is each.empty and each.name not in declared.arguments}

    assert {option for option, each in declared.options.items() if each.is_required} == needed


@pytest.mark.parametrize("declared", OPERATIONS.values(), ids=lambda each: each.name)
def test_what_is_said_to_follow_from_a_declaration_is_in_the_signature(declared: Operation) -> None:
    parameters = inspect.signature(getattr(maintenance, declared.name)).parameters

    assert declared.on_files == ({"workers", "runner"} <= parameters.keys())
    assert declared.only_reads == ("dry_run" not in parameters)
    assert "progress" in parameters or not declared.has_progress


def test_what_may_lose_something_asks() -> None:
    assert {each.name for each in OPERATIONS.values() if each.asks} == {
        *("rescue", "migrate", "erase", "shred", "remove_orphan_files", "unshare")
    }
    assert not [each.name for each in OPERATIONS.values() if each.asks and each.only_reads]


def test_the_policy_for_auditors_is_for_commands_that_only_look() -> None:
    [row] = [line for line in PERMISSIONS.read_text(encoding="utf-8").splitlines() if line.startswith("| auditor |")]
    commands = re.findall(r"`([\w-]+)`", row.split("|")[2])

    assert commands
    assert all(OF_COMMANDS[name].only_reads for name in commands)


def test_every_command_that_needs_a_permission_says_which() -> None:
    assert not [name for name, declared in OF_COMMANDS.items() if not declared.permissions]
