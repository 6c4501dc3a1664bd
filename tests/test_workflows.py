"""The workflows hold the project's rules, and every step of theirs can be run on any machine."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.workflows import called_targets, findings, make_targets, parsed, workflows

ROOT: Final = Path(__file__).parents[1]
WORKFLOWS: Final = workflows()
TESTS: Final[dict[str, Any]] = parsed(WORKFLOWS["test.yml"])["jobs"]["tests"]
CHECKOUT: Final = "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_workflow_keeps_the_rules(name: str) -> None:
    assert findings(name, WORKFLOWS[name]) == []


@pytest.mark.parametrize(
    ("name", "right", "wrong", "found"),
    [
        ("test.yml", "permissions: {}\n", "", "permissions: a workflow begins with none"),
        ("test.yml", "permissions: {}\n", "permissions: read-all\n", "permissions: a workflow begins with none"),
        ("test.yml", "  pull_request:\n", "  pull_request_target:\n", "on: test.yml is started by"),
        ("release.yml", "on:\n  push:\n", "on:\n  workflow_dispatch:\n  push:\n", "on: release.yml is started by"),
        ("nightly.yml", "concurrency:\n", "env:\n", "concurrency: name a group"),
        ("test.yml", CHECKOUT, "actions/checkout@v7", "actions/checkout@v7: pin an action"),
        ("test.yml", CHECKOUT, "actions/checkout@main # v7.0.1", "pin an action"),
        ("test.yml", CHECKOUT, CHECKOUT.partition(" #")[0], "pin an action"),
        ("test.yml", CHECKOUT, CHECKOUT.replace("3d3c", "3d3"), "pin an action"),
        ("release.yml", "$/.github/workflows/test.yml", "$/.github/workflows/tests.yml", "there is no such workflow"),
        ("release.yml", "$/.github/workflows/test.yml", "./.github/workflows/test.yml", "pin an action"),
        ("test.yml", "    timeout-minutes: 15\n", "", "lint: timeout-minutes is missing"),
        ("test.yml", "    timeout-minutes: 15\n", "    timeout-minutes: 600\n", "lint: timeout-minutes is missing, or more than 360"),
        ("test.yml", "      contents: read #", "      contents: write #", "lint: it may write ['contents'], and should []"),
        ("test.yml", "      contents: read #", "      packages: read #", "lint: it reads more than the sources"),
        ("test.yml", "    permissions:\n      contents: read #", "    permissions: write-all #", "lint: say each permission"),
        ("release.yml", "      contents: write #", "      id-token: write #", "announce: it may write ['id-token']"),
        ("test.yml", "          persist-credentials: false\n", "          fetch-depth: 1\n", "lint: actions/checkout leaves its token"),
        ("test.yml", "run: make lint\n", "run: pip install ruff\n", "lint: 'pip install ruff' is no call"),
        ("release.yml", 'TAG="$GITHUB_REF_NAME"', 'TAG="${{ github.ref_name }}"', "is no call of a target"),
    ],
)
def test_a_workflow_that_breaks_a_rule_is_noticed(name: str, right: str, wrong: str, found: str) -> None:
    assert right in WORKFLOWS[name]

    assert any(found in each for each in findings(name, WORKFLOWS[name].replace(right, wrong, 1)))


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_target_that_a_workflow_calls_is_in_the_makefile(name: str) -> None:
    called = called_targets(WORKFLOWS[name])

    assert called
    assert called - make_targets() == set()


def test_an_action_has_one_version_in_all_workflows() -> None:
    used = set(re.findall(r"uses: ([\w/-]+)@(\w+ # \S+)", "".join(WORKFLOWS.values())))

    assert len({action for action, _ in used}) == len(used)


def test_the_pythons_of_the_tests_are_those_that_the_package_claims() -> None:
    """One that is planned runs too, and does not fail the workflow until the package claims it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    claimed = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    matrix = TESTS["strategy"]["matrix"]
    planned = {each["python"] for each in matrix["include"] if each.get("planned")}

    assert sorted(set(matrix["python"]) - planned) == sorted(claimed)
    assert planned <= set(matrix["python"])
    assert project["requires-python"] == f">={min(claimed, key=lambda version: int(version.partition('.')[2]))}"


def test_every_python_is_tested_with_a_java_that_spark_can_use() -> None:
    matrix = TESTS["strategy"]["matrix"]

    assert sorted(each["python"] for each in matrix["include"]) == sorted(matrix["python"])
    assert {each["java"] for each in matrix["include"]} == {"17", "21"}


def test_the_parts_of_the_tests_are_all_parts() -> None:
    parts = TESTS["strategy"]["matrix"]["shard"]

    assert parts == list(range(1, len(parts) + 1))
    assert TESTS["env"]["PYTEST_ADDOPTS"] == f"--shard=${{{{ matrix.shard }}}}/{len(parts)}"
    assert f"of {len(parts)}" in TESTS["name"]


def test_the_night_has_every_part_of_the_makefile() -> None:
    command = ["make", "--no-print-directory", "--silent", "nightly-parts"]
    environment = {name: value for name, value in os.environ.items() if name != "NIGHTLY_PARTS"}
    parts = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=True).stdout.split()
    job = parsed(WORKFLOWS["nightly.yml"])["jobs"]["nightly"]

    assert sorted(job["strategy"]["matrix"]["part"]) == sorted(parts)
    assert job["env"] == {"NIGHTLY_PARTS": "${{ matrix.part }}"}


def test_macos_runs_what_needs_no_java() -> None:
    job = parsed(WORKFLOWS["test.yml"])["jobs"]["macos"]
    (target,) = [step["run"].removeprefix("make ") for step in job["steps"] if "run" in step]
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition(f"\n{target}:")[2].partition("\n\n")[0]

    assert job["runs-on"].startswith("macos-")
    assert not [step for step in job["steps"] if "java" in step.get("uses", "")]
    assert "not java" in recipe


def test_a_release_is_tested_built_and_attested_before_somebody_lets_it_be_published() -> None:
    jobs = parsed(WORKFLOWS["release.yml"])["jobs"]

    assert [(name, job.get("needs")) for name, job in jobs.items()] == [
        ("test", None),
        ("build", "test"),
        ("attest", "build"),
        ("publish", "attest"),
        ("announce", "publish"),
    ]
    assert {name for name, job in jobs.items() if "environment" in job} == {"publish"}
    assert parsed(WORKFLOWS["release.yml"])["on"] == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+"]}}


def test_nothing_that_an_earlier_run_left_becomes_part_of_a_release() -> None:
    assert "cache" not in WORKFLOWS["release.yml"].replace("Without a cache", "")


def test_a_job_that_signs_or_publishes_runs_no_code_of_the_repository() -> None:
    jobs = parsed(WORKFLOWS["release.yml"])["jobs"]
    signing = [job for job in jobs.values() if job["permissions"].get("id-token") == "write"]

    assert len(signing) == 2
    assert not [step for job in signing for step in job["steps"] if "run" in step or "checkout" in step["uses"]]
