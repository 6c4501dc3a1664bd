"""Whoever installs the wheel, with no extra or with one alone, has what it promises; what an extra would bring is refused by its name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest

from tests.packages.features import FEATURES, WITHOUT_EXTRA
from tests.support.aws import CREDENTIALS, REGION, AwsServer
from tests.support.distributions import EXTRAS, PROJECT, Environment, install
from tests.support.java_version import java_problem
from tests.support.orc_files import vector
from tests.support.postgres import PostgresServer

HERE: Final = Path(__file__).parent
NAMED: Final = re.compile(r'pip install "…\[([\w-]+)\]"')
BRINGS: Final = {"cli": {"cli", "report"}, "glue": {"glue", "aws"}}
"""Extras that bring what another is for, too."""
SUITES: Final = "tablecrypt.testing."
"""Modules for test suites: whoever runs them has pytest."""


def answer_of(done: Any) -> Any:
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_what_is_installed_fits_together(environment: Environment) -> None:
    assert environment.problems() == ""


def test_every_module_imports_or_names_the_extra_that_it_needs(environment: Environment, wheel: Path) -> None:
    modules = [name for name in modules_of(wheel) if not name.startswith(SUITES)]
    refused = answer_of(environment.run("python", "-I", str(HERE / "import_each.py"), *modules))
    installed = {each for extra in environment.extras for each in BRINGS.get(extra, {extra})}

    assert {name: said for name, (kind, said) in refused.items() if kind != "MissingExtraError" or not NAMED.search(said)} == {}
    named = {found[1] for _, said in refused.values() if (found := NAMED.search(said))}
    assert named <= set(EXTRAS)
    assert named & installed == set()


def modules_of(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if name.endswith(".py") and not name.endswith("__main__.py")]
    return sorted(name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files)


def test_the_command_runs(environment: Environment) -> None:
    version = environment.run("tablecrypt", "--version")
    listed = environment.run("tablecrypt", "--help")

    assert (version.returncode, version.stdout, version.stderr) == (0, f"tablecrypt {PROJECT['version']}\n", "")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "  demo " in listed.stdout


def test_the_demo_runs_from_the_wheel_alone_and_leaves_nothing(environment: Environment) -> None:
    shown = environment.run("tablecrypt", "demo", TMPDIR=str(environment.folder / "empty"))

    assert (shown.returncode, shown.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert "4 shelf 120" in lines
    assert [line for line in lines if line.startswith("encrypted, every file") and line.endswith("none")]
    assert list((environment.folder / "empty").iterdir()) == []


def test_every_extra_has_a_feature_that_is_tried() -> None:
    assert {*EXTRAS, WITHOUT_EXTRA} == set(FEATURES)


def test_what_is_installed_does_what_it_is_for(environment: Environment, aws: AwsServer, request: pytest.FixtureRequest) -> None:
    places: dict[str, Any] = {"endpoint": aws.endpoint, "region": REGION, "s3": aws.s3_properties, "bucket": aws.bucket("packages")}
    places["lzo"] = str(vector("mixed_lzo"))
    for extra in environment.extras or (WITHOUT_EXTRA,):
        if extra == "spark" and (problem := java_problem()):
            pytest.skip(problem)
        if extra == "sql-postgres":
            server: PostgresServer = request.getfixturevalue("postgres")
            places["postgres"] = server.new_database()
        done = environment.run("python", "-I", str(HERE / "features.py"), extra, json.dumps(places), **CREDENTIALS, AWS_REGION=REGION)

        assert answer_of(done) == FEATURES[extra].answer


def test_a_page_without_jinja_names_the_extra(wheel: Path, tmp_path: Path) -> None:
    bare = install(wheel, tmp_path / "it", ())
    refused = bare.run("python", "-I", str(HERE / "features.py"), "report", "{}")

    assert refused.stderr.splitlines()[-1].startswith("tablecrypt.errors.MissingExtraError: a report in HTML needs the package Jinja2")
    assert NAMED.search(refused.stderr.splitlines()[-1])


def test_without_click_the_command_is_one_line_that_names_the_extra(wheel: Path, tmp_path: Path) -> None:
    """PyIceberg brings click, so that no installation lacks it, unless somebody removes it."""
    bare = install(wheel, tmp_path / "it", ())
    bare.remove("click")
    for arguments in (["--version"], ["--help"], ["demo"]):
        refused = bare.run("tablecrypt", *arguments)

        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.count("\n") == 1
        assert 'pip install "…[cli]"' in refused.stderr


def test_a_type_checker_sees_the_types_of_the_installed_package(wheel: Path, tmp_path: Path) -> None:
    installed = install(wheel, tmp_path / "it", ())
    program = tmp_path / "program.py"
    lines = ["from tablecrypt import load_catalog", "from tablecrypt_catalog import EncryptedSqlCatalog", "reveal_type(load_catalog)"]
    program.write_text("\n".join(lines))
    command = [sys.executable, "-m", "mypy", program.name, "--python-executable", str(installed.python), "--config-file", ""]

    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "pyiceberg.catalog.Catalog" in checked.stdout
