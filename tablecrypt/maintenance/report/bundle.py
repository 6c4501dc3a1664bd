"""An audit as a zip to hand over: pages for people, JSON for programs, and the SHA-256 of each file.

    README.txt      how to check it
    SHA256SUMS      of every other member
    audit.html      the whole audit
    audit.json      the same, as `tablecrypt audit --json` prints it
    clauses.html    each requirement, what shows it, and the result
    cover.html      what was looked at and what was found, on one page

The same audit makes the same bytes: members are sorted, and all have the time of the audit. (How zlib compresses may differ between its
versions; the members do not.) There are file names, key ids and partition values in it, and neither keys nor rows.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import json
import shlex
import textwrap
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tablecrypt.arguments import checked_arguments
from tablecrypt.maintenance._audit.changes import AuditChanges
from tablecrypt.maintenance._audit.findings import Audit
from tablecrypt.maintenance.report.clauses import ClauseResult, Outcome, clause_results
from tablecrypt.maintenance.report.key_tables import day
from tablecrypt.maintenance.report.markup import rendered, templates
from tablecrypt.maintenance.report.new_files import check_new_file, write_new_file
from tablecrypt.maintenance.report.overview import Verdict, minute, verdict
from tablecrypt.maintenance.report.page import html_page
from tablecrypt.printable import bytes_shown, counted, json_form, printable

SUMS: Final = "SHA256SUMS"
UNSEEN_BY_AUDITS: Final = (
    "Whether the bytes after a file's beginning are ciphertext, and unchanged: tablecrypt verify reads every byte.",
    "Copies elsewhere: backups, older object versions, replicas, exports, caches.",
    "Tables of other catalogs, and files outside the tables' folders that nothing names.",
    "Who may use the master keys: the key service's permissions and its log show that.",
    "What Iceberg's format leaves readable: names and types of columns, properties, row counts, times, file names.",
)
WHAT_HASHES_PROVE: Final = (
    "If the bundle's hash reached you by another way than the bundle, it shows that nothing was changed since; SHA256SUMS alone shows "
    "only damage. No hash shows who made the bundle, that the machine's clock was right, or that the program was the true one: repeat the "
    "audit to see for yourself."
)
_CONTENTS: Final = {
    "cover.html": "what was looked at and what was found, on one page",
    "clauses.html": "each requirement, what shows it, and the result",
    "audit.html": "the whole audit: each finding, table, key and file",
    "audit.json": "the same for programs",
    "README.txt": "how to check the bundle",
    SUMS: "the SHA-256 of each of these files",
}
_REPLACE: Final = ", or replace it with --force (replace=True in Python)"
_SHOWN_TABLES: Final = 12
_FIRST_YEAR_OF_ZIP: Final = 1980
_MODE: Final = 0o100600


@dataclass(frozen=True)
class Evidence:
    """A bundle that was written.

    Attributes:
        path: of the zip.
        sha256: SHA-256 of its bytes, in hexadecimal digits.
        members: the SHA-256 of each file in it, by name.
    """

    path: str
    sha256: str
    members: dict[str, str]


@checked_arguments()
def write_evidence(found: Audit, path: str | Path, *, changes: AuditChanges | None = None, replace: bool = False) -> Evidence:
    """Write an audit as a zip to hand over, which its owner alone can read. The file is there whole or not at all.

    Args:
        found: the audit, of a table or a catalog.
        path: of the zip; its name ends in .zip.
        changes: what changed since an earlier audit, if the bundle is to say that.
        replace: whether there may be a file of that name already.

    Raises:
        ConfigurationError: the path has another ending, is a folder or an existing file, or is in a folder that cannot be written to.
        MissingExtraError: Jinja2 is not installed.
        OSError: the file system failed.
    """
    target = Path(path)
    check_evidence_path(target, replace)
    members = _members(found, changes)
    content = _zipped(members, found.moment)
    write_new_file(target, content, replace, _REPLACE)
    return Evidence(str(path), _sha256(content), {name: _sha256(each) for name, each in sorted(members.items())})


def check_evidence_path(path: Path, replace: bool = False) -> None:
    """Refuse a path to which no bundle could be written, before an audit that takes minutes.

    Raises:
        ConfigurationError: the path has another ending, is a folder or an existing file, or is in a folder that cannot be written to.
        MissingExtraError: Jinja2 is not installed.
    """
    check_new_file(path, {".zip"}, replace, _REPLACE)
    templates()


def _members(found: Audit, changes: AuditChanges | None) -> dict[str, bytes]:
    results, made_by = clause_results(found), f"tablecrypt {version('tablecrypt')}"
    result = found.to_json() if changes is None else {**found.to_json(), "changes": json_form(changes)}
    texts = {
        "README.txt": _readme(found, made_by),
        "audit.html": html_page(found, changes),
        "audit.json": json.dumps(result, indent=2) + "\n",
        "clauses.html": rendered("clauses.html", **_heading(found, made_by), results=results),
        "cover.html": _cover(found, changes, results, made_by),
    }
    members = {name: text.encode() for name, text in texts.items()}
    sums = "".join(f"{_sha256(members[name])}  {name}\n" for name in sorted(members))

    return {**members, SUMS: sums.encode()}


def _zipped(members: Mapping[str, bytes], moment: dt.datetime) -> bytes:
    utc = moment.astimezone(dt.UTC)
    # Zip files know no earlier dates.
    time = utc.timetuple()[:6] if utc.year >= _FIRST_YEAR_OF_ZIP else (_FIRST_YEAR_OF_ZIP, 1, 1, 0, 0, 0)
    content = io.BytesIO()

    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as bundle:
        for name in sorted(members):
            member = zipfile.ZipInfo(name, time)
            member.create_system, member.external_attr = 3, _MODE << 16  # Unix, on every system
            bundle.writestr(member, members[name], zipfile.ZIP_DEFLATED, 9)

    return content.getvalue()


def _heading(found: Audit, made_by: str) -> dict[str, object]:
    return {
        "name": found.tables[0].table if len(found.tables) == 1 and not found.is_whole else found.catalog,
        "moment": minute(found.moment),
        "moment_iso": found.moment.isoformat(timespec="seconds"),
        "made_by": made_by,
    }


def _cover(found: Audit, changes: AuditChanges | None, results: tuple[ClauseResult, ...], made_by: str) -> str:
    numbers = Counter(each.outcome for each in results)
    return rendered(
        "cover.html",
        **_heading(found, made_by),
        verdict=_verdict(found),
        facts=_facts(found, changes, made_by),
        counts=[(outcome.style, f"{numbers[outcome]} {outcome}") for outcome in Outcome if numbers[outcome]],
        number=len(results),
        open=[each for each in results if each.outcome in (Outcome.NOT_MET, Outcome.NOT_CHECKED)],
        has_parts=numbers[Outcome.PARTLY] > 0,
        unseen=UNSEEN_BY_AUDITS,
        proof=WHAT_HASHES_PROVE,
        contents=_CONTENTS,
    )


def _verdict(found: Audit) -> Verdict:
    # An audit that opened no table found no plaintext either: that must not read as a clean result.
    if any(table.location for table in found.tables):
        return verdict(found)
    why = f"None of the {len(found.tables):,} could be opened." if found.tables else "The catalog lists none."
    return Verdict("critical", "No table was looked into.", f"{why} This audit shows nothing.")


def _facts(found: Audit, changes: AuditChanges | None, made_by: str) -> list[tuple[str, str]]:
    files = [file for table in found.tables for file in table.files]
    names = [table.table for table in found.tables]
    more = len(names) - _SHOWN_TABLES
    facts = [
        ("Catalog", found.catalog),
        ("Scope", _scope(found)),
        ("Tables", ", ".join(names[:_SHOWN_TABLES]) + (f" and {more:,} more, listed in audit.html" if more > 0 else "") or "none"),
        (
            "Files",
            f"{counted(len(files), 'file', 'files')}, {bytes_shown(sum(file.length or 0 for file in files))}, "
            f"of {counted(sum(len(table.snapshots) for table in found.tables), 'snapshot', 'snapshots')}",
        ),
        ("When", minute(found.moment)),
        ("Made by", made_by),
    ]
    if changes is not None:
        what = f"{counted(len(changes.new), 'new finding', 'new findings')}, {len(changes.gone):,} resolved"
        facts.append(("Compared with", f"the audit of {day(changes.since)}: {what}"))
    return facts


def _scope(found: Audit) -> str:
    if found.is_whole:
        return f"all {counted(len(found.tables), 'table', 'tables')} that the catalog lists"
    return f"{counted(len(found.tables), 'table', 'tables')}, chosen by name: the catalog's other tables were not looked at"


def _readme(found: Audit, made_by: str) -> str:
    width = max(map(len, _CONTENTS))
    contents = "\n".join(f"    {name:<{width}}  {what}" for name, what in _CONTENTS.items())
    unseen = "\n".join(f"  - {each}" for each in UNSEEN_BY_AUDITS)
    # The catalog's name is quoted for the shell: readers paste the command.
    return f"""Evidence of an encryption audit

Catalog {printable(found.catalog)}: {_scope(found)}
{minute(found.moment)}, by {made_by}

WHAT IS HERE

{contents}

HOW TO CHECK IT

1. The bundle. The person who made it saw its SHA-256 on their screen and should have given it to you by another way than the
   bundle itself. Compare it with what this command prints:
       sha256sum evidence.zip            (macOS: shasum -a 256 evidence.zip, Windows: certutil -hashfile evidence.zip SHA256)
2. Its files. Unpack the bundle into an empty folder, and run this there; each line must end in OK:
       sha256sum -c {SUMS}           (macOS: shasum -a 256 -c {SUMS})
3. What it says. With permission to read the tables' storage and to unwrap with their master keys, repeat the audit; this
   reports what is different now:
       tablecrypt --catalog {shlex.quote(printable(found.catalog))} audit --since audit.json

{textwrap.fill(WHAT_HASHES_PROVE, 120)}

WHAT AN AUDIT CANNOT SEE

{unseen}

The bundle has names of tables and files, key ids and partition values in it. It has no keys and no rows.
"""


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
