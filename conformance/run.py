"""`python conformance/run.py [--only READER …] [--page FILE]`: who reads every case right, and who accepts what is to be refused.

It needs pyarrow, and tablecrypt only for that reader and those that the tests of tablecrypt start. The kit is copied first to
/tmp/iceberg-encryption-conformance, where its tables say that they are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

KIT: Final = Path(__file__).parent.absolute()
if str(KIT.parent) not in sys.path:
    sys.path.insert(0, str(KIT.parent))

from conformance.rows import read_rows, same_rows  # noqa: E402

ROOT: Final = Path("/tmp/iceberg-encryption-conformance")
ADAPTERS: Final = KIT / "adapters"
READERS: Final = {
    "tablecrypt": "tablecrypt_reader.py",
    "pyarrow": "pyarrow_reader.py",
    "duckdb": "duckdb_reader.py",
    "trino": "trino_reader.py",
    "iceberg-java": "iceberg_java_reader.py",
    "parquet-java": "parquet_java_reader.py",
    "iceberg-rust": "iceberg_rust_reader.py",
}
_MODULES: Final = os.pathsep.join([str(KIT.parent), str(KIT.parent / "catalog")])
"""Where adapters import from: this folder's own, and of tablecrypt's repository its catalogs."""
_PATHS: Final = ("folder", "metadata", "seen_before", "key_file", "file", "rows")

RIGHT: Final = "right"
REFUSED: Final = "refused"
OTHERWISE: Final = "refused, for another reason"
ACCEPTED: Final = "ACCEPTED"
WRONG: Final = "WRONG ROWS"
NOT_READ: Final = "not read"
TOLERATED: Final = "right rows all the same"
UNSUPPORTED: Final = "not tried"
DIED: Final = "DIED"


@dataclass(frozen=True)
class Verdict:
    """What came of one case."""

    case: dict[str, Any]
    outcome: str
    message: str = ""


@dataclass
class Report:
    """What one reader made of all cases."""

    name: str
    version: str
    verdicts: list[Verdict] = field(default_factory=list)


def load_cases(kit: Path = KIT) -> list[dict[str, Any]]:
    """The cases, with absolute paths."""
    cases: list[dict[str, Any]] = json.loads((kit / "manifest.json").read_text())["cases"]
    return [{name: str(kit / value) if name in _PATHS else value for name, value in case.items()} | {"kit": str(kit)} for case in cases]


def install(root: Path = ROOT) -> Path:
    """Copy the kit to where its tables say that they are, and make the files that are the first bytes of others.

    A copy that is there already stays as it is, for readers that are at it. SystemExit for a folder that is no copy of the kit.
    """
    digest, mark = _digest(), root / "installed"
    if mark.is_file() and mark.read_text() == digest:
        return root
    if root.exists() and not mark.is_file() and any(root.iterdir()):
        raise SystemExit(f"{root} is not empty, and no copy of the kit: it stays as it is. Move it away, or choose another --root")
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(KIT, root, ignore=shutil.ignore_patterns("build", "adapters", "upstream", "__pycache__", "*.py"))
    for case in load_cases(root):
        if "made_of" in case:
            whole = (root / case["made_of"]["file"]).read_bytes()
            Path(case["folder"]).mkdir(exist_ok=True)
            Path(case["file"]).write_bytes(whole[: case["made_of"]["first"]])
    mark.write_text(digest)
    return root


def _digest() -> str:
    """Of all that is copied."""
    digest = hashlib.sha256()
    for path in sorted([KIT / "manifest.json", KIT / "keys.json", *(KIT / "cases").rglob("*")]):
        if path.is_file():
            digest.update(f"{path.relative_to(KIT)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def judged(case: dict[str, Any], answer: dict[str, Any], out: Path) -> Verdict:
    """Compare what a reader answered with what the manifest expects."""
    message = answer.get("message", "")
    match case["kind"], answer["result"]:
        case _, "unsupported":
            return Verdict(case, UNSUPPORTED, message)
        case _, "died":
            return Verdict(case, DIED, message)
        case "refuse", "refused":
            return Verdict(case, REFUSED if answer["class"] in case["refusal"] else OTHERWISE, f"{answer['class']}: {message}")
        case "refuse", "files" if case["forged"] == "content":
            return Verdict(case, UNSUPPORTED, "it opens lists and manifests alone")
        case "refuse", "files":
            return Verdict(case, TOLERATED if _is_listed(case, answer) else ACCEPTED)
        case "read", "files":
            return Verdict(case, RIGHT if _is_listed(case, answer) else WRONG)
        case "refuse", "rows" if "rows" in case and _is_expected(case, out):
            return Verdict(case, TOLERATED)
        case "refuse", _:
            return Verdict(case, ACCEPTED)
        case "read", "refused":
            return Verdict(case, NOT_READ, f"{answer['class']}: {message}")
    return Verdict(case, RIGHT if _is_expected(case, out) else WRONG)


def _is_listed(case: dict[str, Any], answer: dict[str, Any]) -> bool:
    """What a reader says that opens a table's lists and manifests, and none of its data files."""
    return all(answer[name] == case[name] for name in ("files", "records"))


def _is_expected(case: dict[str, Any], out: Path) -> bool:
    if "rows" in case:
        return same_rows(read_rows(out), read_rows(case["rows"]))
    data = out.read_bytes()
    return {"length": len(data), "sha256": hashlib.sha256(data).hexdigest()} == dict(case["plaintext"])


class Reader:
    """An adapter's process. One that dies is started again for the next case."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self.start()

    def start(self) -> None:
        # A file: a pipe that nobody reads would stop a reader that says much.
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  `stop` closes it
        self._process = subprocess.Popen(
            [sys.executable, str(self._program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=os.environ | {"PYTHONPATH": _MODULES},
        )
        hello = self._line()
        if hello is None:
            raise RuntimeError(self._last_words())
        self.hello: dict[str, Any] = hello

    def ask(self, case: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        answer = self._line()
        if answer is not None:
            return answer
        died = {"result": "died", "message": self._last_words()}
        self.start()
        return died

    def stop(self) -> None:
        self._process.communicate()
        self._said.close()

    def _line(self) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def _last_words(self) -> str:
        self._process.wait()
        self._said.seek(0)
        return (self._said.read().strip().splitlines() or ["it ended without a word"])[-1]


def run(reader: Reader, cases: list[dict[str, Any]]) -> Report:
    """Ask a reader for every case of its levels."""
    report = Report(reader.hello["name"], reader.hello["version"])
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        for case in cases:
            if case["level"] not in reader.hello["levels"]:
                continue
            out.unlink(missing_ok=True)
            report.verdicts.append(judged(case, reader.ask(case | {"out": str(out)}), out))
    return report


def reports(names: list[str], cases: list[dict[str, Any]]) -> Iterator[Report]:
    """Run those of the readers that are there; say which are not."""
    for name in names:
        program = ADAPTERS / READERS[name]
        try:
            reader = Reader(program)
        except (RuntimeError, OSError) as problem:
            print(f"{name}: not there ({problem})", file=sys.stderr)
            continue
        try:
            yield run(reader, cases)
        finally:
            reader.stop()


def page(found: list[Report], cases: list[dict[str, Any]]) -> str:
    """docs/conformance.md."""
    outcomes = (RIGHT, NOT_READ, WRONG, REFUSED, OTHERWISE, ACCEPTED, DIED, TOLERATED, UNSUPPORTED)
    lines = [
        "# Conformance",
        "",
        f"`make conformance` made this page by a run. The kit in `conformance/` has {len(cases)} cases: "
        + ", ".join(f"{number} {level}" for level, number in Counter(case["level"] for case in cases).items())
        + ". Its README says what another project does with it.",
        "",
        "A reader that is right reads each `read` case and gives its rows, and refuses each `refuse` case for what was done to it.",
        "",
        "- *refused, for another reason*: it gave no row, but stumbled over bytes that it had decrypted and nothing authenticated, or says "
        "something else than what was done.",
        "- *right rows all the same*: it gave the rows that were written, without looking at what was forged.",
        "- *accepted*: it gave other rows than those that were written. This is what encryption is to prevent.",
        "- a reader that opens lists and manifests alone is right where it counts the files and records that were written. Cases of forged "
        "data and delete files are not tried then.",
        "- a case with a star is for readers that do more than the specification asks: they use page indexes or bloom filters, compare "
        "metadata.json with what is authenticated, or pin what they have seen.",
        "",
        "## Who reads what, and who accepts forged tables",
        "",
        "| reader | level | " + " | ".join(outcome.lower() for outcome in outcomes) + " |",
        "|---|---|" + "---|" * len(outcomes),
    ]
    for report in found:
        for level in dict.fromkeys(verdict.case["level"] for verdict in report.verdicts):
            counts = Counter(verdict.outcome for verdict in report.verdicts if verdict.case["level"] == level)
            cells = " | ".join(str(counts[outcome] or "") for outcome in outcomes)
            lines.append(f"| {report.name} {report.version} | {level} | {cells} |")
    for report in found:
        lines += ["", f"## {report.name} {report.version}", ""]
        noted: dict[tuple[str, str], list[str]] = {}
        for verdict in report.verdicts:
            if verdict.outcome not in (RIGHT, REFUSED):
                noted.setdefault((verdict.outcome, _cell(verdict)), []).append(
                    verdict.case["id"] + ("\\*" if verdict.case.get("needs") else "")
                )
        if not noted:
            lines.append("Every case as the manifest says.")
            continue
        lines += ["| what came of it | what it said | cases |", "|---|---|---|"]
        lines += [f"| {outcome.lower()} | {said} | {', '.join(names)} |" for (outcome, said), names in noted.items()]
    return "\n".join(lines) + "\n"


def _cell(verdict: Verdict) -> str:
    """What the last cause says, in one line, without the place of a file, which differs from case to case."""
    text = (
        re.split(r" \| |Caused by: ", verdict.message)[-1]
        .replace(verdict.case["folder"], "…")
        .replace(f"{ROOT}/cases/{verdict.case['id']}", "…")
    )
    short = " ".join(re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d{12,}", "…", re.sub(r"\.\.\. \d+ more", "", text)).split())[:140]
    return f"`{short.replace('|', '/').replace('`', '')}`" if short else ""


def main() -> int:
    """Print a line for each reader, write the page; 1 if a reader that was asked for by name is not there."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", nargs="+", choices=READERS, default=list(READERS))
    arguments.add_argument("--page", type=Path, help="where to write what docs/conformance.md is")
    arguments.add_argument("--case", nargs="+", default=["*"], help="ids of cases, with * for anything; what came of each is printed")
    arguments.add_argument("--root", type=Path, default=ROOT, help="where to copy the kit, for readers that map locations of tables")
    chosen = arguments.parse_args()
    installed = load_cases(install(chosen.root.absolute()))
    cases = [case for case in installed if any(fnmatch(case["id"], pattern) for pattern in chosen.case)]
    found = []
    for report in reports(chosen.only, cases):
        found.append(report)
        counts = Counter(verdict.outcome for verdict in report.verdicts)
        print(
            f"{report.name} {report.version}: " + ", ".join(f"{number} {outcome}" for outcome, number in counts.most_common()), flush=True
        )
        if chosen.case != ["*"]:
            print("\n".join(f"  {verdict.case['id']}: {verdict.outcome} {_cell(verdict)}" for verdict in report.verdicts))
    if chosen.page:
        chosen.page.write_text(page(found, cases))
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
