"""The hooks for a commit run the tools of .venv, pass on the tree as it is, and stop what they are for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

from tests.support.plaintext_scan import unwatch

ROOT: Final = Path(__file__).parents[1]
SETTINGS: Final = ROOT / ".pre-commit-config.yaml"
CONFIGURATION: Final[dict[str, Any]] = YAML(typ="safe").load(SETTINGS.read_text(encoding="utf-8"))
HOOKS: Final = [hook for repository in CONFIGURATION["repos"] for hook in repository["hooks"]]
BIN: Final = Path(sys.executable).parent


def test_hooks_download_nothing() -> None:
    assert {repository["repo"] for repository in CONFIGURATION["repos"]} == {"local"}
    assert {hook["language"] for hook in HOOKS} == {"unsupported"}


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_runs_a_tool_that_lint_runs(hook: dict[str, Any]) -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nlint: setup\n")[2].partition("\n\n")[0]
    tool, *arguments = hook["entry"].removeprefix(".venv/bin/").replace(" --force-exclude", "").split()

    assert f"$(BIN)/{tool} {' '.join(arguments)}".strip() in recipe
    assert hook["entry"].startswith(".venv/bin/")
    assert (BIN / tool).exists()


def test_whatever_lint_runs_is_a_hook_too() -> None:
    """But for the one schema whose file has a single line."""
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nlint: setup\n")[2].partition("\n\n")[0]
    linted = set(re.findall(r"\$\(BIN\)/([\w-]+)", recipe))

    assert {hook["entry"].removeprefix(".venv/bin/").split()[0] for hook in HOOKS} == linted


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The tracked files as they are now, in a repository of their own with the tools of this environment."""
    folder = tmp_path / "clone"
    unwatch(folder)  # the conformance kit has rows in the clear beside its tables
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, encoding="utf-8").stdout
    for name in filter(None, listed.split("\0")):
        if not name.startswith("tests/vectors/") and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(BIN)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)
    return folder


def _replace(path: Path, right: str, wrong: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert right in text
    path.write_text(text.replace(right, wrong, 1), encoding="utf-8")


def _run_hooks(clone: Path) -> subprocess.CompletedProcess[str]:
    """All but mypy and the import contracts, which take a minute and which `make lint` and test_architecture.py run."""
    environment = os.environ | {"PRE_COMMIT_HOME": str(clone.parent / "hooks"), "SKIP": "mypy,import-contracts"}
    command = [str(BIN / "pre-commit"), "run", "--all-files", "--color=never"]
    return subprocess.run(command, cwd=clone, env=environment, capture_output=True, encoding="utf-8", check=False)


@pytest.mark.nightly
@pytest.mark.slow
def test_the_hooks_pass_on_the_tree_as_it_is(clone: Path) -> None:
    run = _run_hooks(clone)

    assert run.returncode == 0, run.stdout + run.stderr
    assert len(re.findall(r"\.Passed$", run.stdout, re.MULTILINE)) == len(HOOKS) - 2


@pytest.mark.nightly
@pytest.mark.slow
def test_the_hooks_stop_what_they_are_for(clone: Path) -> None:
    github = clone / ".github"
    _replace(github / "workflows" / "nightly.yml", "          persist-credentials: false\n", "          fetch-depth: 1\n")
    _replace(github / "workflows" / "test.yml", "jobs:\n", "jobs:\n  broken: 1\n")
    _replace(github / "ISSUE_TEMPLATE" / "bug.yml", "  - type: textarea", "  - type: novel")
    _replace(github / "dependabot.yml", "version: 2", "version: two")
    (clone / "tablecrypt" / "new.py").write_text('"""New."""\nimport os\n', encoding="utf-8")
    subprocess.run(["git", "add", "--all"], cwd=clone, check=True)

    run = _run_hooks(clone)

    assert run.returncode == 1
    failed = set(re.findall(r"^(.*?)\.+Failed$", run.stdout, re.MULTILINE))
    assert failed == {"ruff check", "ruff format", "zizmor", "schema of workflows", "schema of dependabot.yml", "schema of issue forms"}
