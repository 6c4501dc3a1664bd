"""What must hold of every workflow in .github/workflows: `findings(name, text)` returns a sentence for each rule that one breaks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / ".github" / "workflows"

MAY_WRITE: Final = {
    ("release.yml", "attest"): {"attestations", "id-token"},
    ("release.yml", "publish"): {"id-token"},
    ("release.yml", "announce"): {"contents"},
}
"""The jobs that may change anything outside of their runner, and what."""

TRIGGERS: Final = {
    "test.yml": {"pull_request", "push", "workflow_call", "workflow_dispatch"},
    "nightly.yml": {"schedule", "workflow_dispatch"},
    "release.yml": {"push"},
}
"""Not among them: `pull_request_target` and `workflow_run`, which give the code of a stranger the rights of this repository."""

LONGEST_JOB: Final = 360
"""Minutes after which a hosted runner ends a job in any case."""

_PINNED: Final = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
_OWN: Final = re.compile(r"\$/\.github/workflows/(?P<name>[\w-]+\.yml)")
_STEP: Final = re.compile(r'make (?P<target>[a-z-]+)( TAG="\$GITHUB_REF_NAME")?')


def workflows() -> dict[str, str]:
    """The text of every workflow, by the name of its file."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.iterdir())}


def parsed(text: str) -> dict[str, Any]:
    """A workflow as YAML 1.2, in which `on` is a word."""
    document: dict[str, Any] = YAML(typ="safe").load(text)
    return document


def make_targets() -> set[str]:
    """The targets that the Makefile offers by name."""
    (listed,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return set(listed.split())


def called_targets(text: str) -> set[str]:
    """The targets of the Makefile that the steps of a workflow call."""
    runs = [step["run"] for _, job in _jobs(text) for step in job.get("steps", []) if "run" in step]
    return {found["target"] for run in runs if (found := _STEP.fullmatch(run))}


def findings(name: str, text: str) -> list[str]:
    """Return what is wrong with a workflow, as sentences that begin with the place."""
    return [*_of_the_whole(name, text), *_of_actions(text), *(each for job in _jobs(text) for each in _of_a_job(name, *job))]


def _jobs(text: str) -> list[tuple[str, dict[str, Any]]]:
    return list(parsed(text)["jobs"].items())


def _of_the_whole(name: str, text: str) -> Iterator[str]:
    workflow = parsed(text)
    if workflow.get("permissions") != {}:
        yield "permissions: a workflow begins with none, `permissions: {}`, and its jobs say what they need"
    if set(workflow["on"]) != TRIGGERS.get(name):
        yield f"on: {name} is started by {sorted(TRIGGERS.get(name, ()))} alone"
    if "concurrency" not in workflow:
        yield "concurrency: name a group, so that runs for the same branch follow each other"


def _of_actions(text: str) -> Iterator[str]:
    for line in re.findall(r"^[ -]*uses: (.*)$", text, re.MULTILINE):
        if own := _OWN.fullmatch(line):
            if not (FOLDER / own["name"]).is_file():
                yield f"{line}: there is no such workflow"
        elif not _PINNED.fullmatch(line):
            yield f"{line}: pin an action by the hash of its commit, with its version behind: owner/action@0123…cdef # v1.2.3"


def _of_a_job(name: str, job_name: str, job: dict[str, Any]) -> Iterator[str]:
    yield from _of_permissions(name, job_name, job.get("permissions"))
    if "uses" not in job and not 0 < job.get("timeout-minutes", 0) <= LONGEST_JOB:
        yield f"{job_name}: timeout-minutes is missing, or more than {LONGEST_JOB}"
    for step in job.get("steps", []):
        yield from _of_a_step(job_name, step)


def _of_permissions(name: str, job_name: str, permissions: Any) -> Iterator[str]:
    if not isinstance(permissions, dict):
        yield f"{job_name}: say each permission by its name"
        return
    written = {scope for scope, access in permissions.items() if access == "write"}
    if written != MAY_WRITE.get((name, job_name), set()):
        yield f"{job_name}: it may write {sorted(written)}, and should {sorted(MAY_WRITE.get((name, job_name), ()))}"
    if not {scope for scope, access in permissions.items() if access == "read"} <= {"contents"}:
        yield f"{job_name}: it reads more than the sources"


def _of_a_step(job_name: str, step: dict[str, Any]) -> Iterator[str]:
    if "run" in step and not _STEP.fullmatch(step["run"]):
        yield f"{job_name}: {step['run']!r} is no call of a target of the Makefile"
    if step.get("uses", "").startswith("actions/checkout@") and step.get("with", {}).get("persist-credentials") is not False:
        yield f"{job_name}: actions/checkout leaves its token to later steps without `persist-credentials: false`"
