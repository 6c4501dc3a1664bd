"""An audit as a bundle to hand over: whole or not there, the same bytes each time, with hashes that hold, and no requirement met unseen."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import re
import signal
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import pytest

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import Audit, Finding, FindingKind, Severity, changes_since, write_evidence
from tablecrypt.maintenance.report.clauses import Outcome, clause_results
from tablecrypt.maintenance.report.exposure import UNSEEN
from tests.maintenance.test_audit_page import EVIL, Page, evil_changes, evil_table
from tests.support.audited_catalog import NOW, audited_catalog, table_audit, unloaded
from tests.support.clause_table import PAGE, clause_table, in_page
from tests.support.pages import ROOT

MEMBERS: Final = ["README.txt", "SHA256SUMS", "audit.html", "audit.json", "clauses.html", "cover.html"]
WRITER: Final = """
import resource, signal, sys
from tests.support.audited_catalog import audited_catalog
from tablecrypt.maintenance import write_evidence
signal.signal(signal.SIGXFSZ, getattr(signal, sys.argv[2]))
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
write_evidence(audited_catalog(), sys.argv[1], replace=True)
"""


def audit_of(*kinds: FindingKind) -> Audit:
    """Two tables in order but for a finding of each kind in the first."""
    bad = table_audit(findings=tuple(Finding(kind, "somewhere", "something") for kind in kinds))
    return Audit("lakehouse", True, NOW, (bad, table_audit("web.events")))


def outcomes(found: Audit) -> set[Outcome]:
    return {each.outcome for each in clause_results(found)}


def unpacked(path: Path, folder: Path) -> Path:
    with zipfile.ZipFile(path) as bundle:
        bundle.extractall(folder)
    return folder


def shown(path: Path, name: str) -> str:
    with zipfile.ZipFile(path) as bundle:
        return Page(bundle.read(name).decode()).shown


def check_sums(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, text=True, check=False)


def test_the_hashes_of_the_unpacked_bundle_hold_and_show_a_change(tmp_path: Path) -> None:
    written = write_evidence(audited_catalog(), tmp_path / "evidence.zip")
    folder = unpacked(tmp_path / "evidence.zip", tmp_path / "unpacked")

    assert sorted(written.members) == sorted(each.name for each in folder.iterdir()) == MEMBERS
    done = check_sums(folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": OK\n") == len(MEMBERS) - 1
    sums = subprocess.run(["sha256sum", tmp_path / "evidence.zip"], capture_output=True, text=True, check=True).stdout
    assert sums.split()[0] == written.sha256

    (folder / "audit.json").write_text((folder / "audit.json").read_text().replace('"plaintext": true', '"plaintext": false'))
    assert "audit.json: FAILED" in check_sums(folder).stdout


def test_the_same_audit_makes_the_same_bytes_whenever_it_is_written(tmp_path: Path) -> None:
    first, second = (write_evidence(audited_catalog(), tmp_path / f"{name}.zip") for name in ("first", "second"))
    later = write_evidence(dataclasses.replace(audited_catalog(), moment=NOW + dt.timedelta(days=1)), tmp_path / "later.zip")

    assert first.sha256 == second.sha256 != later.sha256
    with zipfile.ZipFile(tmp_path / "first.zip") as bundle:
        assert bundle.namelist() == MEMBERS
        assert {each.date_time for each in bundle.infolist()} == {(2026, 5, 4, 3, 2, 0)}


def test_a_moment_that_no_zip_can_hold_is_no_error(tmp_path: Path) -> None:
    early = dataclasses.replace(audited_catalog(), moment=dt.datetime(1975, 1, 1, tzinfo=dt.UTC))

    assert write_evidence(early, tmp_path / "evidence.zip").sha256


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_evidence(audited_catalog(), tmp_path / "evidence.zip")
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "evidence.zip").stat().st_mode) == 0o600


def test_the_next_audit_is_compared_with_the_json_of_the_bundle(tmp_path: Path) -> None:
    earlier = dataclasses.replace(audit_of(FindingKind.MISSING_FILE), moment=NOW - dt.timedelta(days=9))
    write_evidence(earlier, tmp_path / "earlier.zip")
    kept = (unpacked(tmp_path / "earlier.zip", tmp_path / "earlier") / "audit.json").read_text()

    changes = changes_since(audit_of(), kept)
    write_evidence(audit_of(), tmp_path / "next.zip", changes=changes)

    assert [each.kind for each in changes.gone] == ["missing-file"]
    assert "Compared with the audit of 2026-04-25: 0 new findings, 1 resolved" in shown(tmp_path / "next.zip", "cover.html")
    with zipfile.ZipFile(tmp_path / "next.zip") as bundle:
        assert json.loads(bundle.read("audit.json"))["changes"] == changes.to_json()


def test_the_cover_says_what_was_looked_at_when_by_what_and_what_was_found(tmp_path: Path) -> None:
    write_evidence(audited_catalog(), tmp_path / "whole.zip")
    cover = shown(tmp_path / "whole.zip", "cover.html")

    for said in (
        "Plaintext was found in 2 of 9 tables.",
        "all 9 tables that the catalog lists",
        "sales.orders",
        "4 May 2026, 03:02 UTC",
        "tablecrypt 0.",
        "9 met in part",
        "7 not met",
        "No snapshot can be read without a key. 1 finding in 1 of 9 tables; 1 table not fully checked",
        "Copies elsewhere: backups",
        "sha256sum -c SHA256SUMS",
    ):
        assert said in cover
    write_evidence(dataclasses.replace(audit_of(), is_whole=False), tmp_path / "part.zip")
    part = shown(tmp_path / "part.zip", "cover.html")
    assert "2 tables, chosen by name: the catalog's other tables were not looked at" in part
    assert "16 met" in part
    assert "not met" not in part


def test_older_metadata_that_does_not_open_is_not_called_free_of_plaintext_times() -> None:
    found = {each.clause.requirement: each.outcome for each in clause_results(audit_of(FindingKind.UNOPENED))}

    assert found["No metadata from before encryption is left."] == Outcome.PARTLY


def test_no_table_is_no_evidence(tmp_path: Path) -> None:
    nothing = Audit("lakehouse", True, NOW, ())
    write_evidence(nothing, tmp_path / "evidence.zip")

    assert outcomes(nothing) == {Outcome.NOT_CHECKED}
    assert "No table was looked into. The catalog lists none." in shown(tmp_path / "evidence.zip", "cover.html")
    assert "No plaintext was found" not in shown(tmp_path / "evidence.zip", "cover.html")


def test_tables_that_could_not_be_opened_are_no_evidence(tmp_path: Path) -> None:
    closed = (unloaded("hr.reviews", FindingKind.KEY_REFUSED, "refused"), unloaded("hr.people", FindingKind.REFUSED_TABLE, "refused"))
    write_evidence(Audit("lakehouse", True, NOW, closed), tmp_path / "evidence.zip")

    assert "No table was looked into. None of the 2 could be opened." in shown(tmp_path / "evidence.zip", "cover.html")
    assert "No plaintext was found" not in shown(tmp_path / "evidence.zip", "cover.html")


def test_tables_in_order_meet_every_requirement() -> None:
    assert outcomes(audit_of()) == {Outcome.MET}


@pytest.mark.parametrize("kind", [kind for kind in FindingKind if kind.severity > Severity.INFO], ids=lambda kind: kind.code)
def test_no_finding_leaves_every_requirement_met(kind: FindingKind) -> None:
    assert outcomes(audit_of(kind)) - {Outcome.MET}


@pytest.mark.parametrize("kind", [kind for kind in FindingKind if kind.severity == Severity.INFO], ids=lambda kind: kind.code)
def test_a_note_contradicts_nothing_and_is_counted(kind: FindingKind) -> None:
    assert outcomes(audit_of(kind)) == {Outcome.MET}
    assert [each.detail for each in clause_results(audit_of(kind)) if "note" in each.detail] == ["in 2 of 2 tables; 1 note"]


@pytest.mark.parametrize("kind", [kind for kind in FindingKind if kind in UNSEEN], ids=lambda kind: kind.code)
def test_no_requirement_is_met_in_a_table_that_was_not_opened(kind: FindingKind) -> None:
    closed = unloaded("hr.reviews", kind, "refused")

    assert outcomes(Audit("lakehouse", True, NOW, (closed,))) == {Outcome.NOT_MET, Outcome.NOT_CHECKED}
    assert outcomes(Audit("lakehouse", True, NOW, (closed, table_audit()))) == {Outcome.NOT_MET, Outcome.PARTLY}


def test_the_page_on_compliance_has_the_same_clauses() -> None:
    assert in_page(PAGE.read_text(encoding="utf-8")) == clause_table(), "run python -m tests.support.clause_table"


def test_names_of_others_are_text_on_every_page(tmp_path: Path) -> None:
    write_evidence(Audit(EVIL, False, NOW, (evil_table(),)), tmp_path / "evidence.zip", changes=evil_changes())
    folder = unpacked(tmp_path / "evidence.zip", tmp_path / "unpacked")

    for name in ("cover.html", "clauses.html"):
        page = Page((folder / name).read_text(encoding="utf-8"))
        assert not page.open
        assert not {tag for tag, _ in page.tags} & {"script", "img"}
        assert '<script>alert("x")</script>' in page.shown
    for name in MEMBERS:
        assert "\x1b" not in (folder / name).read_text(encoding="utf-8")
        assert "\u202e" not in (folder / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("evidence", "the name must end in .zip"),
        ("evidence.tar.gz", "the name must end in .zip"),
        ("folder.zip", "is a folder"),
        ("nowhere/evidence.zip", "there is no folder"),
        ("there.zip", "exists already: name another file, or replace it with --force"),
        ("dangling.zip", "exists already"),
        ("/proc/evidence.zip", "no file can be written in /proc"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder.zip").mkdir()
    (tmp_path / "there.zip").write_bytes(b"another")
    (tmp_path / "dangling.zip").symlink_to(tmp_path / "elsewhere.zip")

    with pytest.raises(ConfigurationError, match=re.escape(message)):
        write_evidence(audited_catalog(), tmp_path / name)

    assert (tmp_path / "there.zip").read_bytes() == b"another"
    assert not (tmp_path / "elsewhere.zip").exists()


def test_a_file_is_replaced_if_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "evidence.zip").write_bytes(b"another")

    write_evidence(audited_catalog(), str(tmp_path / "evidence.zip"), replace=True)

    assert check_sums(unpacked(tmp_path / "evidence.zip", tmp_path / "unpacked")).returncode == 0


@pytest.mark.parametrize("content", [None, b"another"], ids=["new", "replaced"])
@pytest.mark.parametrize("action", ["SIG_DFL", "SIG_IGN"], ids=["killed", "full"])
def test_a_killed_writer_leaves_nothing(tmp_path: Path, content: bytes | None, action: str) -> None:
    """A limit on the length of files ends the process, or the write, where it has written a part."""
    path = tmp_path / "evidence.zip"
    if content is not None:
        path.write_bytes(content)

    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "catalog")])}
    done = subprocess.run([sys.executable, "-c", WRITER, path, action], env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == (-signal.SIGXFSZ if action == "SIG_DFL" else 1), done.stderr
    assert [each.read_bytes() for each in tmp_path.iterdir()] == ([] if content is None else [content])
