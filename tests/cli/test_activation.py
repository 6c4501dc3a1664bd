"""`tablecrypt activate` and `deactivate`: one file of one environment, in which every program then opens encrypted tables."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tablecrypt.cli import activation
from tests.support.environments import DEPENDENCIES, OWN, Environment

FILE: Final = activation.FILE_NAME
LOADS: Final = """
from pyiceberg.catalog import load_catalog
print(type(load_catalog("x", type="tablecrypt", uri="sqlite:///:memory:", **{"encryption.kms-type": "memory"})).__name__)
"""
IS_REGISTERED: Final = "import sys; print(any(type(each).__module__.startswith('tablecrypt') for each in sys.meta_path))"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment") / "venv", *OWN, DEPENDENCIES)


def command(environment: Environment, *arguments: str) -> tuple[int, str, str]:
    done = environment.run("-m", "tablecrypt.cli", *arguments)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_it_lasts_until_it_is_undone(environment: Environment) -> None:
    file = environment.site_packages / FILE
    before = set(environment.site_packages.iterdir())

    refused = command(environment, "activate")
    assert refused[0] == 2 and f"Write {file}, so that " in refused[2] and refused[2].endswith("add --yes\n")
    assert environment.run("-c", IS_REGISTERED).stdout == "False\n"

    assert command(environment, "activate", "--yes")[:2] == (0, f"wrote {file}: {activation.IN_EFFECT}\n")
    assert set(environment.site_packages.iterdir()) == before | {file}
    assert environment.run("-c", LOADS).stdout == "EncryptedSqlCatalog\n"
    assert environment.run("-I", "-c", IS_REGISTERED).stdout == "True\n"
    written = file.read_bytes()
    assert command(environment, "activate")[:2] == (0, f"{file} is there already: {activation.IN_EFFECT}\n")
    assert file.read_bytes() == written

    refused = command(environment, "deactivate")
    assert refused[0] == 2 and f"Remove {file}, so that " in refused[2] and file.exists()
    assert command(environment, "deactivate", "--yes")[:2] == (0, f"removed {file}\n")
    assert set(environment.site_packages.iterdir()) == before
    assert command(environment, "deactivate", "--yes")[:2] == (0, f"there is no {file}: this environment is not activated\n")


def test_python_starts_as_ever_where_tablecrypt_was_removed_since(environment: Environment) -> None:
    file = environment.site_packages / FILE
    file.write_text(activation.CONTENT)
    try:
        environment.find(DEPENDENCIES)
        done = environment.run("-c", "import sys, pyiceberg.catalog; print(len([each for each in sys.modules if 'tablecrypt' in each]))")
        assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    finally:
        environment.find(*OWN, DEPENDENCIES)
        file.unlink()


def test_what_starts_with_every_process_imports_no_package(environment: Environment) -> None:
    program = "import sys; print(*sorted(sys.modules))"
    before = environment.run("-c", program).stdout.split()
    file = environment.site_packages / FILE
    file.write_text(activation.CONTENT)
    try:
        after = environment.run("-c", program).stdout.split()
    finally:
        file.unlink()
    assert set(after) - set(before) <= {"__future__", "tablecrypt_catalog", "tablecrypt_catalog.registration"}
    assert "tablecrypt_catalog.registration" in after


def test_without_effect_nothing_stays(environment: Environment) -> None:
    environment.find(DEPENDENCIES)
    try:
        done = environment.run("-m", "tablecrypt.cli", "activate", "--yes", PYTHONPATH=":".join(map(str, OWN)))
    finally:
        environment.find(*OWN, DEPENDENCIES)
    assert done.returncode == 2
    assert "had no effect, and was removed" in done.stderr
    assert not (environment.site_packages / FILE).exists()


def test_a_folder_in_the_files_place_stays(environment: Environment) -> None:
    folder = environment.site_packages / FILE
    folder.mkdir()
    for name in ("activate", "deactivate"):
        code, printed, said = command(environment, name, "--yes")
        assert (code, printed) == (2, "")
        assert f"{folder} is not what tablecrypt activate writes" in said
    folder.rmdir()


def test_a_file_that_it_did_not_write_stays_and_one_of_another_release_goes(environment: Environment) -> None:
    file = environment.site_packages / FILE
    file.write_text("# theirs\n")
    for name in ("activate", "deactivate"):
        code, printed, said = command(environment, name, "--yes")
        assert (code, printed) == (2, "")
        assert f"{file} is not what tablecrypt activate writes" in said
        assert file.read_text() == "# theirs\n"

    file.write_text(activation.CONTENT.partition("\n")[0] + "\n# in another way\n")
    assert command(environment, "deactivate", "--yes")[:2] == (0, f"removed {file}\n")
    assert not file.exists()


def test_an_environment_of_the_system_is_refused_as_pip_refuses_it(tmp_path: Path) -> None:
    assert activation.kept_by_the_system("/usr/bin/python3", False, tmp_path) is None
    (tmp_path / "EXTERNALLY-MANAGED").touch()
    assert activation.kept_by_the_system("/venv/bin/python3", True, tmp_path) is None
    said = activation.kept_by_the_system("/usr/bin/python3", False, tmp_path)
    assert said is not None and said.startswith("/usr/bin/python3 belongs to the system's package manager")
