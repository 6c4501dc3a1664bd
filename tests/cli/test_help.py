"""The help: every command has one with examples and exit codes, all spell the shared options alike, and the list of commands is quick."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from tablecrypt.cli._framework import DocumentedCommand
from tablecrypt.cli.commands import COMMANDS, OTHER_COMMANDS, TABLE_COMMANDS, root
from tablecrypt.cli.operations import plain_command
from tablecrypt.operations import OF_COMMANDS
from tests.support.command import run, run_process

FOLDER = Path(sys.modules["tablecrypt.cli"].__file__ or "").parent
CHANGING = sorted(set(TABLE_COMMANDS) - {"list", "describe", "doctor", "audit", "verify", "inspect", "cat", "shares"})
DESTROYING = ("migrate", "erase", "shred", "orphans", "rescue", "unshare")


def command_named(name: str) -> DocumentedCommand:
    found = root.get_command(click.Context(root), name)
    assert isinstance(found, DocumentedCommand), name
    return found


def options_of(name: str) -> set[str]:
    return {option for parameter in command_named(name).params for option in parameter.opts}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    found = command_named(name)
    text = found.get_help(click.Context(found, info_name=name))

    assert found.name == name
    assert found.examples
    assert "Exit codes:" in text
    assert name in found.examples[0][1]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_the_command_says(name: str) -> None:
    assert (command_named(name).help or "").splitlines()[0] == COMMANDS[name]


@pytest.mark.parametrize("name", TABLE_COMMANDS)
def test_every_command_on_tables_has_json(name: str) -> None:
    assert "--json" in options_of(name)


@pytest.mark.parametrize("name", CHANGING)
def test_every_command_that_changes_something_has_a_dry_run(name: str) -> None:
    assert "--dry-run" in options_of(name)


@pytest.mark.parametrize("name", DESTROYING)
def test_what_destroys_asks(name: str) -> None:
    assert "--yes" in options_of(name)


@pytest.mark.parametrize("name", OF_COMMANDS)
def test_a_command_that_is_made_from_its_declaration_alone_neither_asks_nor_prints_in_its_own_way(name: str) -> None:
    is_plain = command_named(name).callback.__module__ == plain_command.__module__

    assert not (is_plain and (OF_COMMANDS[name].asks or OF_COMMANDS[name].found))


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_takes_a_key(name: str) -> None:
    assert not options_of(name) & {"--key", "--secret", "--password", "--dek", "--kek"}


def test_the_list_names_every_command() -> None:
    text = run("--help").stdout

    assert all(f"  {name} " in text for name in COMMANDS)
    assert len(TABLE_COMMANDS) + len(OTHER_COMMANDS) == len(COMMANDS)


@pytest.mark.parametrize("arguments", [["--help"], ["compact", "--help"], ["relocate", "--help"]])
def test_the_list_of_commands_and_the_help_of_an_operation_load_no_operation(arguments: list[str]) -> None:
    code = (
        "import sys; from tablecrypt.cli.main import run\n"
        f"try: run({arguments})\n"
        "except SystemExit: pass\n"
        "print(sorted({'pyarrow', 'rich', 'sqlalchemy', 'tablecrypt.maintenance', 'tablecrypt.cli.audit'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120, cwd=FOLDER.parents[1])

    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    done = run("completion", shell)

    assert done.code == 0
    assert "_TABLECRYPT_COMPLETE" in done.stdout
    assert "\\x0a" not in done.stdout


def test_bash_takes_the_script_of_completion() -> None:
    script = f"{run('completion', 'bash').stdout}\ncomplete -p tablecrypt"
    bash = subprocess.run(["bash", "-euc", script], capture_output=True, check=False, timeout=60, encoding="utf-8")

    assert (bash.returncode, bash.stderr) == (0, "")
    assert "-F _tablecrypt_completion tablecrypt" in bash.stdout


def test_completion_completes_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TABLECRYPT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "tablecrypt re")
    monkeypatch.setenv("COMP_CWORD", "1")

    words = {line.partition(",")[2] for line in run_process().stdout.splitlines()}

    assert {"reencrypt", "rewrap"} <= words


def test_the_version_is_told() -> None:
    assert run("--version").stdout.startswith("tablecrypt")


def test_a_catalog_that_would_not_encrypt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__BARE__URI", "sqlite://")
    done = run("--catalog", "bare", "audit")

    assert done.code == 2
    assert "py-catalog-impl" in done.stderr
