"""The help: every command has one with examples and exit codes, all spell the shared options alike, and the list of commands is quick."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from tablecrypt.cli._framework import DocumentedCommand
from tablecrypt.cli.commands import COMMANDS, OTHER_COMMANDS, TABLE_COMMANDS, root
from tests.support.command import Command, run, run_process

FOLDER = Path(sys.modules["tablecrypt.cli"].__file__ or "").parent
CHANGING = sorted(set(TABLE_COMMANDS) - {"list", "describe", "doctor", "audit", "verify", "inspect", "cat"})
DESTROYING = ("migrate", "erase", "shred", "orphans", "rescue")


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


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_takes_a_key(name: str) -> None:
    assert not options_of(name) & {"--key", "--secret", "--password", "--dek", "--kek"}


def test_the_list_names_every_command() -> None:
    text = run("--help").stdout

    assert all(f"  {name} " in text for name in COMMANDS)
    assert len(TABLE_COMMANDS) + len(OTHER_COMMANDS) == len(COMMANDS)


def test_the_list_of_commands_loads_no_command() -> None:
    code = (
        "import sys; from tablecrypt.cli.main import run\n"
        "try: run(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'pyarrow', 'rich', 'sqlalchemy', 'tablecrypt.maintenance', 'tablecrypt.cli.audit'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120, cwd=FOLDER.parents[1])

    assert done.stdout.splitlines()[-1] == "[]"


def test_an_unknown_command_is_code_2() -> None:
    done = run("audti")

    assert done.code == 2
    assert "No such command 'audti'; did you mean audit?" in done.stderr
    assert "did you mean" not in run("xyzzy").stderr
    assert "--quick" in run("verify", "--quik", "db.t").stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    done = run("completion", shell)

    assert done.code == 0
    assert "_TABLECRYPT_COMPLETE" in done.stdout
    assert "\\x0a" not in done.stdout
    assert len(done.stdout.splitlines()) > 5


def test_bash_evaluates_its_script() -> None:
    line = 'eval "$1"; declare -F _tablecrypt_completion; complete -p tablecrypt'
    done = subprocess.run(["bash", "-c", line, "-", run("completion", "bash").stdout], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("_tablecrypt_completion\ncomplete ")


def test_completion_completes_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TABLECRYPT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "tablecrypt re")
    monkeypatch.setenv("COMP_CWORD", "1")

    words = {line.partition(",")[2] for line in run_process().stdout.splitlines()}

    assert {"reencrypt", "rewrap"} <= words


def test_the_version_is_told() -> None:
    assert run("--version").stdout.startswith("tablecrypt")


def test_without_click_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "click", None)

    done = run("--help")

    assert (done.code, "…[cli]" in done.stderr) == (2, True)


def test_a_property_without_a_value_is_refused() -> None:
    done = run("--property", "uri", "audit")

    assert (done.code, done.stderr) == (2, "tablecrypt: --property uri: write name=value\n")


def test_a_catalog_that_would_not_encrypt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__BARE__URI", "sqlite://")
    done = run("--catalog", "bare", "audit")

    assert done.code == 2
    assert "py-catalog-impl" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--catalog", "nowhere", "audit"), "no catalog 'nowhere' is configured"),
        (("audit",), "no catalog is named: put --catalog NAME"),
        (("--property", "py-catalog-impl=nowhere.Catalog", "audit", "db.t"), "cannot be imported"),
        (("--catalog", "nowhere", "verify", "orders"), "write namespace.name"),
    ],
)
def test_a_catalog_or_a_name_that_cannot_be_is_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)

    assert (done.code, done.stdout) == (2, "")
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_database_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    properties = {"py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog", "uri": f"sqlite:///{tmp_path}/nowhere/catalog.db"}
    done = Command(properties).run("audit")

    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "there is no catalog database at" in done.stderr


def test_a_file_is_told_from_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.parquet").touch()
    done = run("inspect", "rows.parquet")

    assert done.code == 2
    assert "write ./rows.parquet" in done.stderr


@pytest.mark.parametrize("option", ["--catalog", "--property", "-p"])
def test_an_option_that_belongs_before_the_command_is_told_as_such(option: str) -> None:
    done = run("audit", option, "prod", "db.orders")

    assert done.code == 2
    assert f"{option} belongs before the command" in done.stderr
    assert "No such option" in run("audit", "--nothing").stderr


@pytest.mark.parametrize("age", ["99999999999d", "\u00b2d", "30x", "2023-02-30"])
def test_an_age_that_is_none_is_refused(age: str) -> None:
    done = run("reencrypt", "db.t", "--older-than", age)

    assert done.code == 2
    assert "neither a date" in done.stderr
