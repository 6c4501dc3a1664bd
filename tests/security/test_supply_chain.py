"""What an installation brings is named and hashed, and the wheel is the same bytes wherever it is built."""

from __future__ import annotations

import email
import json
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.distributions import LOCKED_APART, NOT_FOR_USERS, build, copy_sources
from tests.support.pages import run_page

ROOT: Final = Path(__file__).parents[2]
PYPROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT: Final[dict[str, Any]] = PYPROJECT["project"]
EXTRAS: Final[dict[str, list[str]]] = PROJECT["optional-dependencies"]


def _locked(file: str) -> dict[str, list[tuple[str, list[str]]]]:
    """Every locked package of a file: its versions (several where platforms differ), each with its hashes."""
    found: dict[str, list[tuple[str, list[str]]]] = {}
    text = (ROOT / "requirements" / file).read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line.partition("--hash")[0].strip())
            pinned = re.fullmatch(r"==([^,*]+)", str(requirement.specifier))
            assert pinned, f"{line} is not pinned to one version"
            hashes = re.findall(r"--hash=(sha256:[0-9a-f]{64})", line)
            found.setdefault(canonicalize_name(requirement.name), []).append((pinned.group(1), hashes))
    return found


def _required(extras: set[str]) -> list[Requirement]:
    """What pyproject.toml asks for with these extras, its own extras in each other resolved."""
    texts = list(PROJECT["dependencies"])
    for extra in extras:
        for text in EXTRAS[extra]:
            requirement = Requirement(text)
            texts += [str(each) for each in _required(requirement.extras)] if requirement.name == "tablecrypt" else [text]
    return [Requirement(text) for text in texts]


LOCKS: Final = {
    "runtime.txt": set(EXTRAS) - NOT_FOR_USERS - LOCKED_APART,
    "dev.txt": {"dev"},
    "demo.txt": {"demo"},
    "fuzz.txt": {"fuzz"},
    "daft.txt": {"daft", "aws", "demo"},
    "ray.txt": {"ray", "aws", "tests"},
    "mutation.txt": {"mutation"},
    "bench.txt": {"bench"},
    "packages.txt": {"packages"},
    "lowest.txt": set(EXTRAS) - NOT_FOR_USERS - LOCKED_APART | {"tests"},
}


@pytest.mark.parametrize("file", LOCKS)
def test_every_locked_package_has_one_version_a_platform_and_its_hashes(file: str) -> None:
    locked = _locked(file)

    assert locked
    assert not [name for name, versions in locked.items() for _, hashes in versions if not hashes]


@pytest.mark.parametrize(("file", "extras"), LOCKS.items())
def test_the_lock_satisfies_what_the_project_asks_for(file: str, extras: set[str]) -> None:
    locked = _locked(file)
    missing = [
        str(requirement)
        for requirement in _required(extras)
        if not any(requirement.specifier.contains(version) for version, _ in locked.get(canonicalize_name(requirement.name), []))
    ]

    assert missing == [], "run `make lock`"


def test_the_lock_of_the_documentation_satisfies_its_group() -> None:
    locked = _locked("docs.txt")
    required = [Requirement(text) for text in PYPROJECT["dependency-groups"]["docs"]]

    assert all(any(each.specifier.contains(version) for version, _ in locked[canonicalize_name(each.name)]) for each in required)
    assert not [name for name, versions in locked.items() for _, hashes in versions if not hashes]


def test_the_demo_installs_far_less_than_the_tests() -> None:
    assert 2 * len(_locked("demo.txt")) < len(_locked("dev.txt"))


def test_what_is_tested_is_what_users_are_told_to_install() -> None:
    tested, offered = _locked("dev.txt"), _locked("runtime.txt")

    assert not [name for name in tested.keys() & offered.keys() if {v for v, _ in tested[name]} != {v for v, _ in offered[name]}]


def test_the_lowest_lock_has_the_lowest_version_that_the_project_allows() -> None:
    locked = _locked("lowest.txt")
    bounds = {
        canonicalize_name(requirement.name): bound.version
        for requirement in _required(EXTRAS.keys() - NOT_FOR_USERS - LOCKED_APART)
        for bound in requirement.specifier
        if bound.operator == ">="
    }

    above = {name: bound for name, bound in bounds.items() if Version(locked[name][0][0]).release[:2] != _two_numbers(bound)}
    assert above == {}, "raise these bounds to what is tested"


def _two_numbers(version: str) -> tuple[int, ...]:
    return (*Version(version).release, 0)[:2]


def test_locks_name_no_server() -> None:
    assert not [file for file in LOCKS if re.search(r"https?://|--(extra-)?index-url|@ ", (ROOT / "requirements" / file).read_text())]


@pytest.mark.slow
def test_the_wheel_is_the_same_bytes_from_another_folder_at_another_time(tmp_path: Path) -> None:
    first = _wheel(tmp_path / "one")
    second = _wheel(tmp_path / "another" / "deeper", modified=1_700_000_000, umask=0o077)

    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as wheel:
        names = set(wheel.namelist())
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"tablecrypt", "tablecrypt_catalog", f"tablecrypt-{PROJECT['version']}.dist-info"}
    beside_code = [path for path in (ROOT / "tablecrypt/maintenance/report").iterdir() if path.suffix in {".html", ".css", ".js"}]
    assert {f"tablecrypt/maintenance/report/{each.name}" for each in beside_code} <= names
    assert len(beside_code) >= 3


@pytest.mark.slow
def test_the_description_of_the_wheel_renders_on_an_index(tmp_path: Path) -> None:
    """It is Markdown whose links and pictures do not need a clone beside it."""
    with zipfile.ZipFile(_wheel(tmp_path)) as wheel:
        (name,) = [each for each in wheel.namelist() if each.endswith("/METADATA")]
        metadata = email.message_from_bytes(wheel.read(name))
    description = metadata.get_payload()

    assert metadata["Description-Content-Type"] == "text/markdown"
    assert isinstance(description, str)
    assert "# tablecrypt" in description
    assert "The threat model says what an attacker can and cannot do" in description
    assert not re.findall(r"\]\((?!https?://)[^)]*\)", description)


@pytest.mark.parametrize("repository", ["", "https://forge.example/team/tablecrypt/"])
def test_one_setting_fills_the_links_of_the_package(tmp_path: Path, repository: str) -> None:
    shown = _metadata(tmp_path, repository)
    assert shown.returncode == 0, shown.stderr
    urls = json.loads(shown.stdout).get("urls", {})

    assert bool(urls) == bool(repository)
    assert {address.partition("/team/tablecrypt")[2] for address in urls.values()} == (
        {"", "/issues", "/tree/HEAD/docs", "/blob/HEAD/CHANGELOG.md"} if repository else set()
    )


def test_a_repository_that_is_no_address_builds_nothing(tmp_path: Path) -> None:
    shown = _metadata(tmp_path, "forge.example")

    assert shown.returncode != 0
    assert "'forge.example' is no https:// address" in shown.stderr + shown.stdout


@pytest.mark.slow
def test_a_newcomer_who_copies_the_readme_gets_what_it_shows(tmp_path: Path, warehouse: Path) -> None:
    """With the package from the built wheel alone, in a new environment; what it depends on is that of the tests."""
    wheel = _wheel(tmp_path / "sources")
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    (packages,) = environment.glob("lib/*/site-packages")
    dependencies = {path for path in map(Path, sys.path) if path.name == "site-packages"}
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in sorted(dependencies)), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--force-reinstall", str(wheel)], check=True, capture_output=True)

    run_page((ROOT / "README.md").read_text(encoding="utf-8"), warehouse, {"PYTHONSAFEPATH": "1"}, executables=environment / "bin")

    program = [str(python), "-c", "import tablecrypt; print(tablecrypt.__file__)"]
    where = subprocess.run(program, cwd=warehouse, capture_output=True, text=True, check=True)
    assert Path(where.stdout).is_relative_to(environment)


def _wheel(folder: Path, modified: int = 1_000_000_000, umask: int = 0o022) -> Path:
    """A wheel built from a copy of the sources whose files have this time of modification."""
    copy_sources(folder, modified)
    return build(folder, "wheel", umask)


def _metadata(folder: Path, repository: str) -> subprocess.CompletedProcess[str]:
    """What the package says of itself if this is the setting."""
    copy_sources(folder)
    settings = folder / "pyproject.toml"
    text, found = re.subn(r'^repository = ".*?"', f'repository = "{repository}"', settings.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert found == 1
    settings.write_text(text, encoding="utf-8")
    show = [sys.executable, "-m", "hatchling", "metadata"]
    return subprocess.run(show, cwd=folder, check=False, capture_output=True, encoding="utf-8")


@pytest.mark.slow
def test_the_bill_of_materials_lists_every_locked_package_with_its_hashes(tmp_path: Path) -> None:
    target = tmp_path / "tablecrypt.cdx.json"
    arguments = ["requirements", "requirements/runtime.txt", "--pyproject", "pyproject.toml", "--output-reproducible", "-o", str(target)]
    subprocess.run([sys.executable, "-m", "cyclonedx_py", *arguments], cwd=ROOT, check=True, capture_output=True)

    components = json.loads(target.read_text(encoding="utf-8"))["components"]
    listed = {
        (canonicalize_name(each["name"]), each["version"]): {
            digest["content"] for reference in each["externalReferences"] for digest in reference["hashes"]
        }
        for each in components
    }
    for name, versions in _locked("runtime.txt").items():
        for version, hashes in versions:
            assert listed[canonicalize_name(name), version] == {each.removeprefix("sha256:") for each in hashes}
