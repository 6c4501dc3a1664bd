"""What adapters write: each is asked for every case twice, the files are looked at, and every reader that is there reads them."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from conformance.verdicts import DIED, NOT_READ, RIGHT, UNSUPPORTED, WRONG, Verdict, judged, said
from conformance.written import Problem, Written, problem_of

NOT_WRITTEN: Final = "not written"
UNJUDGED: Final = "read by nobody"
_TIMES: Final = 2
"""Once more than a nonce may be used."""


class Adapter(Protocol):
    """A process that answers as adapters/protocol.py says."""

    hello: dict[str, Any]

    def ask(self, case: dict[str, Any]) -> dict[str, Any]:
        """One case, and the answer."""


@dataclass
class WriteVerdict:
    """What came of one case that was written."""

    case: dict[str, Any]
    refused: Verdict | None = None
    """Where the writer wrote nothing."""
    problem: Problem | None = None
    written: list[Written] = field(default_factory=list)
    read: dict[str, Verdict] = field(default_factory=dict)
    """What each judge made of it."""

    @property
    def summary(self) -> Verdict:
        """In a few words: what is wrong with the files, else who does not read them."""
        if self.refused:
            return self.refused
        if self.problem:
            return Verdict(self.case, self.problem.outcome, self.problem.message)
        failed = {name: verdict for name, verdict in self.read.items() if verdict.outcome not in (RIGHT, UNSUPPORTED)}
        if failed:
            first = next(iter(failed.values()))
            others = [each for each, verdict in failed.items() if verdict.outcome == first.outcome]
            return Verdict(first.case | {"id": self.case["id"]}, f"{first.outcome} by {', '.join(others)}", first.message)
        tried = any(verdict.outcome == RIGHT for verdict in self.read.values())
        return Verdict(self.case, RIGHT if tried else UNJUDGED)


@dataclass
class WriteReport:
    """What one writer wrote."""

    name: str
    version: str
    verdicts: list[WriteVerdict] = field(default_factory=list)


def write(adapter: Adapter, cases: Sequence[dict[str, Any]], folder: Path) -> WriteReport:
    """Ask an adapter for every case of the levels that it writes, below a folder, and look at the files."""
    report = WriteReport(adapter.hello["name"], adapter.hello["version"])
    for case in cases:
        if case["level"] in adapter.hello.get("writes", ()):
            report.verdicts.append(_write(adapter, case, folder / case["id"]))
    return report


def _write(adapter: Adapter, case: dict[str, Any], folder: Path) -> WriteVerdict:
    folder.mkdir(parents=True)
    verdict = WriteVerdict(case)
    for number in range(_TIMES):
        out = folder / str(number)
        answer = adapter.ask(case | {"out": str(out), "folder": str(out)})
        if answer["result"] != "written":
            outcome = {"unsupported": UNSUPPORTED, "died": DIED}.get(answer["result"], NOT_WRITTEN)
            verdict.refused = Verdict(case | {"folder": str(out)}, outcome, answer.get("message", ""))
            return verdict
        verdict.written.append(Written(out, Path(answer["metadata"]) if "metadata" in answer else None))
    verdict.problem = problem_of(case, verdict.written)
    return verdict


def judge(report: WriteReport, adapter: Adapter) -> None:
    """Let a reader read what was written, as it is, whatever else is wrong with it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        for verdict in report.verdicts:
            if verdict.refused or verdict.case["level"] not in adapter.hello["levels"] or not verdict.written[0].path.exists():
                continue
            out.unlink(missing_ok=True)
            case = _to_read(verdict.case, verdict.written[0], report.name)
            verdict.read[adapter.hello["name"]] = judged(case, adapter.ask(case | {"out": str(out)}), out)


def _to_read(case: dict[str, Any], written: Written, writer: str) -> dict[str, Any]:
    """The case of kind `read` that a judge gets: nobody tells it that this is no file of the kit."""
    reading = case | {"id": f"{case['id']}-by-{writer}", "kind": "read", "folder": str(written.path)}
    if case["level"] == "table":
        return reading | {"metadata": str(written.metadata)}
    length = {"file_length": written.path.stat().st_size} if case["level"] == "ags1" else {}
    return reading | {"file": str(written.path)} | length


def page_of_writers(reports: Sequence[WriteReport]) -> list[str]:
    """The section of docs/conformance.md: a row for each writer and level, a column for each judge."""
    if not reports:
        return []
    judges = list(dict.fromkeys(name for report in reports for verdict in report.verdicts for name in verdict.read))
    lines = [
        "",
        "## Who writes what, and who reads it",
        "",
        "Each writer is asked for every case twice. *Sound* are files that hold no text of the rows, have the format's magics, lengths and "
        "blocks, and of which no two have a nonce under one key, or a DEK, in common. Of those that were written, each judge reads as many "
        "as its column says.",
        "",
        "| writer | level | cases | written | sound | " + " | ".join(f"read by {name}" for name in judges) + " |",
        "|---|---|---|---|---|" + "---|" * len(judges),
    ]
    for report in reports:
        for level in dict.fromkeys(verdict.case["level"] for verdict in report.verdicts):
            lines.append(_row(report, [verdict for verdict in report.verdicts if verdict.case["level"] == level], judges))
    noted = [line for report in reports for line in _notes(report)]
    if noted:
        lines += ["", "| writer | what came of it | what was said | cases |", "|---|---|---|---|", *noted]
    return lines


def _row(report: WriteReport, verdicts: Sequence[WriteVerdict], judges: Sequence[str]) -> str:
    written = [verdict for verdict in verdicts if not verdict.refused]
    sound = sum(verdict.problem is None for verdict in written)
    cells = [str(len(verdicts)), str(len(written)), str(sound), *(_cell(written, name) for name in judges)]
    return f"| {report.name} {report.version} | {verdicts[0].case['level']} | {' | '.join(cells)} |"


def _cell(written: Sequence[WriteVerdict], judge: str) -> str:
    counts = Counter(verdict.read[judge].outcome for verdict in written if judge in verdict.read)
    if not counts:
        return ""
    wrong = [f"{counts[outcome]} {outcome.lower()}" for outcome in (NOT_READ, WRONG, DIED) if counts[outcome]]
    return ", ".join([str(counts[RIGHT]), *wrong])


def _notes(report: WriteReport) -> list[str]:
    """What is not right, the cases of which the same was said together."""
    noted: dict[tuple[str, str], list[str]] = {}
    for verdict in report.verdicts:
        for outcome, text in _said_of(verdict):
            noted.setdefault((outcome, text), []).append(verdict.case["id"])
    return [f"| {report.name} | {outcome} | {text} | {', '.join(names)} |" for (outcome, text), names in noted.items()]


def _said_of(verdict: WriteVerdict) -> list[tuple[str, str]]:
    if verdict.refused or verdict.problem:
        summary = verdict.summary
        return [(summary.outcome.lower(), said(summary))]
    failed = [(name, each) for name, each in verdict.read.items() if each.outcome not in (RIGHT, UNSUPPORTED)]
    if not failed and verdict.summary.outcome != RIGHT:
        return [(verdict.summary.outcome, "")]
    return [(f"{each.outcome.lower()} by {name}", said(each)) for name, each in failed]
