"""`python conformance/run.py [--only ADAPTER …] [--kind KIND …] [--page FILE]`: who reads every case right, who accepts what is to be
refused, and who reads what the others write.

It needs pyarrow, and tablecrypt only for that adapter and those that the tests of tablecrypt start. The kit is copied first to
/tmp/iceberg-encryption-conformance, where its tables say that they are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
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

from conformance.verdicts import (  # noqa: E402
    ACCEPTED,
    DIED,
    NOT_READ,
    OTHERWISE,
    REFUSED,
    RIGHT,
    ROOT,
    TOLERATED,
    UNSUPPORTED,
    WRONG,
    Verdict,
    judged,
    said,
)
from conformance.writers import WriteReport, judge, page_of_writers, write  # noqa: E402

ADAPTERS: Final = KIT / "adapters"
READERS: Final = {
    "tablecrypt": "tablecrypt_reader.py",
    "pyarrow": "pyarrow_reader.py",
    "duckdb": "duckdb_reader.py",
    "trino": "trino_reader.py",
    "iceberg-java": "iceberg_java_reader.py",
    "parquet-java": "parquet_java_reader.py",
    "iceberg-rust": "iceberg_rust_reader.py",
    "plain-python": "plain_python.py",
}
_MODULES: Final = os.pathsep.join([str(KIT.parent), str(KIT.parent / "catalog")])
"""Where adapters import from: this folder's own, and of tablecrypt's repository its catalogs."""
_PATHS: Final = ("folder", "metadata", "seen_before", "key_file", "file", "rows", "source")
KINDS: Final = ("read", "refuse", "write")


@dataclass
class Report:
    """What one reader made of all cases."""

    name: str
    version: str
    verdicts: list[Verdict] = field(default_factory=list)


def load_cases(kit: Path = KIT) -> list[dict[str, Any]]:
    """The cases, with absolute paths."""
    cases: list[dict[str, Any]] = json.loads((kit / "manifest.json").read_text())["cases"]
    return [_absolute(case, kit) | {"kit": str(kit)} for case in cases]


def _absolute(case: dict[str, Any], kit: Path) -> dict[str, Any]:
    paths = {name: str(kit / value) for name, value in case.items() if name in _PATHS}
    steps = {"steps": [_absolute(step, kit) for step in case["steps"]]} if "steps" in case else {}
    return case | paths | steps


def install(root: Path = ROOT) -> Path:
    """Copy the kit to where its tables say that they are, and make the files that `made_of` describes.

    A copy that is there already stays as it is, for readers that are at it. SystemExit for a folder that is no copy of the kit.
    """
    digest, mark = _digest(), root / "installed"
    if mark.is_file() and mark.read_text() == digest:
        return root
    if root.exists() and not mark.is_file() and any(root.iterdir()):
        raise SystemExit(f"{root} is not empty, and no copy of the kit: it stays as it is. Move it away, or choose another --root")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    mark.touch()  # a copy that is cut short is known as one
    shutil.copytree(KIT, root, ignore=shutil.ignore_patterns("build", "adapters", "upstream", "__pycache__", "*.py"), dirs_exist_ok=True)
    for case in load_cases(root):
        if "made_of" in case:
            path = Path(case.get("source") or case["file"])
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(_made(case["made_of"], root))
    mark.write_text(digest)
    return root


def _made(of: dict[str, Any], root: Path) -> bytes:
    """The first bytes of another file, or of a text that is repeated."""
    length: int = of["first"]
    if "repeated" not in of:
        return Path(root, of["file"]).read_bytes()[:length]
    text = str(of["repeated"]).encode()
    return (text * (length // len(text) + 1))[:length]


def _digest() -> str:
    """Of all that is copied."""
    digest = hashlib.sha256()
    for path in sorted([KIT / "manifest.json", KIT / "keys.json", *(KIT / "cases").rglob("*")]):
        if path.is_file():
            digest.update(f"{path.relative_to(KIT)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()


class Reader:
    """An adapter's process. One that dies is started again for the next case."""

    def __init__(self, program: Path, *arguments: str) -> None:
        # An adapter in Python runs on this interpreter, any other is a program of its own.
        self._command = [*([sys.executable] if program.suffix == ".py" else []), str(program), *arguments]
        self.start()

    def start(self) -> None:
        # A file: a pipe that nobody reads would stop a reader that says much.
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  `stop` closes it
        self._process = subprocess.Popen(
            self._command,
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
            if case["kind"] == "write" or case["level"] not in reader.hello["levels"]:
                continue
            out.unlink(missing_ok=True)
            report.verdicts.append(judged(case, reader.ask(case | {"out": str(out)}), out))
    return report


def present(programs: dict[str, Path]) -> Iterator[tuple[str, Reader]]:
    """Start those of the adapters that are there, one after the other; say which are not."""
    for name, program in programs.items():
        try:
            yield name, Reader(program)
        except (RuntimeError, OSError) as problem:
            print(f"{name}: not there ({problem})", file=sys.stderr)


def write_reports(
    writers: dict[str, Reader], judges: dict[str, Reader], cases: list[dict[str, Any]], folder: Path
) -> Iterator[WriteReport]:
    """Let each adapter write the cases of its levels below `folder`, and each judge read them."""
    for name, writer in writers.items():
        report = write(writer, cases, folder / name)
        for other in judges.values():
            judge(report, other)
        if report.verdicts:
            yield report


def page(found: list[Report], cases: list[dict[str, Any]], written: list[WriteReport]) -> str:
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
    lines += page_of_writers(written)
    for report in found:
        lines += ["", f"## {report.name} {report.version}", ""]
        noted: dict[tuple[str, str], list[str]] = {}
        for verdict in report.verdicts:
            if verdict.outcome not in (RIGHT, REFUSED):
                noted.setdefault((verdict.outcome, said(verdict)), []).append(
                    verdict.case["id"] + ("\\*" if verdict.case.get("needs") else "")
                )
        if not noted:
            lines.append("Every case as the manifest says.")
            continue
        lines += ["| what came of it | what it said | cases |", "|---|---|---|"]
        lines += [f"| {outcome.lower()} | {said} | {', '.join(names)} |" for (outcome, said), names in noted.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print a line for each adapter, write the page; 1 if none of those that were asked for is there."""
    chosen = _arguments()
    installed = load_cases(install(chosen.root.absolute()))
    cases = [case for case in installed if case["kind"] in chosen.kind and any(fnmatch(case["id"], pattern) for pattern in chosen.case)]
    programs = {name: ADAPTERS / READERS[name] for name in dict.fromkeys([*chosen.only, *(chosen.judges or ())])}
    programs |= {Path(program).stem: Path(program).absolute() for program in chosen.adapter}
    # Those that are judges alone read what the others wrote, and nothing else.
    asked = {*chosen.only, *(name for name in programs if name not in READERS)}
    found, written, running = [], list[WriteReport](), dict[str, Reader]()
    try:
        for name, adapter in present(programs):
            running[name] = adapter
            if name in asked:
                found.append(run(adapter, cases))
                _tell(found[-1].name, found[-1].version, found[-1].verdicts, chosen.case != ["*"])
            if "write" not in chosen.kind:
                running.pop(name).stop()
        with tempfile.TemporaryDirectory() as scratch:
            writers = {name: adapter for name, adapter in running.items() if name in asked}
            judges = {name: adapter for name, adapter in running.items() if chosen.judges is None or name in chosen.judges}
            writes = [case for case in cases if case["kind"] == "write"]
            for report in write_reports(writers, judges, writes, (chosen.written or Path(scratch)).absolute()):
                written.append(report)
                _tell(f"{report.name} {report.version}", "writes", [each.summary for each in report.verdicts], chosen.case != ["*"])
    finally:
        for adapter in running.values():
            adapter.stop()
    if chosen.page:
        chosen.page.write_text(page(found, cases, written))
    return 0 if found else 1


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", nargs="+", choices=READERS, default=list(READERS), help="adapters that read, refuse and write")
    arguments.add_argument("--adapter", nargs="+", default=[], metavar="PROGRAM", help="programs of yours that do so too")
    arguments.add_argument("--judges", nargs="+", choices=READERS, help="adapters that read what was written; else all that are there")
    arguments.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS), help="kinds of cases")
    arguments.add_argument("--page", type=Path, help="where to write what docs/conformance.md is")
    arguments.add_argument("--case", nargs="+", default=["*"], help="ids of cases, with * for anything; what came of each is printed")
    arguments.add_argument("--root", type=Path, default=ROOT, help="where to copy the kit, for readers that map locations of tables")
    arguments.add_argument("--written", type=Path, metavar="FOLDER", help="where what is written stays, for a look at it")
    return arguments.parse_args()


def _tell(name: str, version: str, verdicts: list[Verdict], each: bool) -> None:
    """A line for the adapter, and for each case one if the caller asked for cases."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    if counts:
        print(f"{name} {version}: " + ", ".join(f"{number} {outcome}" for outcome, number in counts.most_common()), flush=True)
    if each:
        for verdict in verdicts:
            print(f"  {verdict.case['id']}: {verdict.outcome} {said(verdict)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
