"""The certificate of an erasure, as JSON or as one page of HTML: what was erased, by count, what was searched, and what stays.

No value of an erased row or of the filter is in it. A file's name may hold one ("customer_id=7", "export-customer-7.parquet"), and so may
the message of a store that names the file. So of a location only the last part is given, where it has the form that writers of tables make:

    00000-3-1c1a4d6e-….parquet   snap-6117-0-1c1a4d6e-….avro   1c1a4d6e-…-m0.avro   00007-1c1a4d6e-….metadata.json

Other names are counted, and no message is given. The operation's own result has both, for those who run it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance.erasure.result import RUN_AGAIN, Erased, HiddenColumn, TableState
from tablecrypt.maintenance.report.markup import rendered, templates
from tablecrypt.maintenance.report.new_files import check_new_file, write_new_file
from tablecrypt.maintenance.report.overview import Verdict, minute
from tablecrypt.printable import bytes_shown, counted, json_form

SHOWN: Final = 40
_HTML: Final = ".html"
_SUFFIXES: Final = (_HTML, ".json")
_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_MADE_BY_WRITERS: Final = re.compile(
    rf"\d{{5}}-(\d+-)?{_UUID}(-\d{{5}})?(-deletes|-blanked)?\.(parquet|avro|orc|puffin)"
    rf"|snap-\d+-\d+-{_UUID}\.avro|{_UUID}-m\d+\.avro|\d{{5,}}-{_UUID}(\.gz)?\.metadata\.json(\.gz)?"
)


class _Left(NamedTuple):
    """Files in which something is left to do.

    Attributes:
        name, title: of this kind of files, for programs and for people.
        counted: what is wrong with one of them, and with several.
        advice: what to do.
        locations: where they are.
    """

    name: str
    title: str
    counted: tuple[str, str]
    advice: str
    locations: Collection[str]


def write_certificate(erased: Erased, path: str | Path) -> None:
    """Write the certificate of an erasure, which its owner alone can read. The file is there whole or not at all.

    No file is replaced: the certificate of a second run, which found nothing any more, is no substitute for that of the first.

    Args:
        erased: what the erasure did.
        path: of the file; its ending says what it is: .html a page, .json for programs.

    Raises:
        ConfigurationError: the erasure was a dry run; or the path has another ending, is a folder or an existing file, or is in a folder
            that cannot be written to.
        MissingExtraError: Jinja2, which a page needs, is not installed.
        OSError: the file system failed.
    """
    target = Path(path)
    check_certificate_path(target)
    text = certificate_page(erased) if target.suffix.lower() == _HTML else certificate_json(erased)
    write_new_file(target, text.encode())


def check_certificate_path(path: Path) -> None:
    """Refuse a path to which no certificate could be written, before anything is erased.

    Raises:
        ConfigurationError: the path has another ending, is a folder or an existing file, or is in a folder that cannot be written to.
        MissingExtraError: Jinja2, which a page needs, is not installed.
    """
    check_new_file(path, _SUFFIXES)
    if path.suffix.lower() == _HTML:
        # Loads Jinja2 now: if it is missing, nothing is erased yet.
        templates()


def certificate_json(erased: Erased) -> str:
    """Return the certificate for programs. The same result makes the same text.

    Raises:
        ConfigurationError: the erasure was a dry run.
    """
    _refuse_dry_run(erased)
    above = _verdict(erased)
    fields = {
        "certificate": "erasure",
        "made_by": _made_by(),
        "time": erased.time,
        "complete": erased.is_complete,
        "verdict": f"{above.title} {above.text}",
        "table": erased.table,
        "table_uuid": erased.table_uuid,
        "filter": erased.shape,
        "columns": erased.columns,
        "rows": erased.rows,
        "refs": erased.refs,
        "snapshots": erased.snapshots,
        "retired_keks": erased.retired_keks,
        "deleted": {**_files(erased.deleted), "bytes": erased.deleted_bytes},
        "metadata_rewritten": _files(erased.metadata_rewritten),
        "searched": erased.searched,
        **{each.name: _files(each.locations) for each in _left(erased)},
        "hidden_columns": erased.hidden_columns,
        "not_reached": erased.outside,
        "before": _state(erased.before),
        "after": _state(erased.after),
    }
    return json.dumps(json_form(fields), indent=2) + "\n"


def certificate_page(erased: Erased) -> str:
    """Return the certificate as one page of HTML that needs nothing but itself. The same result makes the same page.

    Raises:
        ConfigurationError: the erasure was a dry run.
        MissingExtraError: Jinja2 is not installed.
    """
    _refuse_dry_run(erased)
    return rendered(
        "certificate.html",
        name=erased.table,
        moment=minute(erased.time),
        moment_iso=erased.time.isoformat(timespec="seconds"),
        made_by=_made_by(),
        verdict=_verdict(erased),
        facts=_facts(erased),
        refs=[(each, bytes_shown(each.rewritten_bytes)) for each in erased.refs],
        searched=_searched(erased),
        left=[(each.title, *_shown(each.locations)) for each in _left(erased)],
        hidden=list(map(_hidden, erased.hidden_columns)),
        removed=_removed(erased),
        outside=erased.outside,
        states=[("Before", _state(erased.before)), ("After", _state(erased.after))],
    )


def _refuse_dry_run(erased: Erased) -> None:
    if erased.dry_run:
        raise ConfigurationError(f"a dry run erased nothing of {erased.table}: there is nothing to certify")


def _made_by() -> str:
    return f"tablecrypt {version('tablecrypt')}"


def _verdict(erased: Erased) -> Verdict:
    # Completeness first: a run that found nothing, and could not search everything, proves nothing.
    if not erased.is_complete:
        return Verdict("critical", "The erasure is not complete.", _first_advice(erased))
    if erased.found_nothing:
        return Verdict("good", "There was nothing to erase.", "Everything was searched, and no file held a row that the filter selects.")
    searched = "Everything that is left in the table was searched, and no file holds a row that the filter selects."
    return Verdict("good", "The rows are erased.", f"{searched} Copies elsewhere are named below.")


def _first_advice(erased: Erased) -> str:
    for each in _left(erased):
        if each.locations:
            return f"{counted(len(each.locations), *each.counted)}: {each.advice}."
    # Nothing but hidden columns is left as the cause: files of every other cause are in one of the lists above.
    columns = counted(len(erased.hidden_columns), "protected column", "protected columns")
    return f"Encrypted values of {columns} stay: let somebody who may use their master key run the same erasure."


def _left(erased: Erased) -> tuple[_Left, ...]:
    return (
        _Left(
            "remaining",
            "Files that still hold something of the rows",
            ("file still holds something of the rows", "files still hold something of the rows"),
            RUN_AGAIN,
            erased.remaining,
        ),
        _Left(
            "failed",
            "Files that could not be deleted or written over",
            ("file could not be deleted or written over", "files could not be deleted or written over"),
            f"grant the permission that the run's result names, and {RUN_AGAIN}",
            erased.failed,
        ),
        _Left(
            "not_searched",
            "Files that could not be searched",
            ("file could not be searched", "files could not be searched"),
            f"do what the run's result says of each, and {RUN_AGAIN}",
            erased.not_searched,
        ),
        _Left(
            "refused",
            "Files that were left, since they need not be the table's",
            ("file was left, since it need not be the table's", "files were left, since they need not be the table's"),
            f"allow the folders that the run's result names, and {RUN_AGAIN}",
            erased.refused,
        ),
    )


def _facts(erased: Erased) -> list[tuple[str, str]]:
    hidden = sum(ref.hidden_rows for ref in erased.refs)
    return [
        ("Table", f"{erased.table}, UUID {erased.table_uuid}"),
        ("Filter", f"{erased.shape} (without its values)"),
        (
            "Rows",
            f"{counted(erased.rows, 'row', 'rows')} that could be read, and {hidden:,} that deletes hid already, "
            "counted on each branch and tag",
        ),
        ("When", minute(erased.time)),
        ("Made by", _made_by()),
    ]


def _searched(erased: Erased) -> list[tuple[str, str]]:
    done = erased.searched
    other = f"{done.other_files:,} that no metadata leads to and no key of the table opens"
    return [
        ("Decrypted and searched", f"{done.data_files:,} data and {done.delete_files:,} delete files, {bytes_shown(done.bytes)}"),
        ("Compared with the filter", counted(done.rows, "row", "rows")),
        (
            "Read",
            f"{counted(done.snapshots, 'snapshot', 'snapshots')}, {counted(done.manifests, 'manifest', 'manifests')}, "
            f"{counted(done.metadata_files, 'metadata file', 'metadata files')}",
        ),
        *([("Other files", other)] if done.other_files else []),
    ]


def _removed(erased: Erased) -> list[tuple[str, list[str], str]]:
    snapshots, keks = list(map(str, erased.snapshots)), list(erased.retired_keks)
    return [
        (counted(len(snapshots), "snapshot", "snapshots"), snapshots[:SHOWN], _more(len(snapshots) - SHOWN)),
        (f"{counted(len(keks), 'KEK', 'KEKs')} that opened them", keks[:SHOWN], _more(len(keks) - SHOWN)),
        (
            f"{counted(len(erased.deleted), 'file', 'files')} deleted, {bytes_shown(erased.deleted_bytes)}",
            *_shown(erased.deleted)[1:],
        ),
        (
            f"{counted(len(erased.metadata_rewritten), 'older metadata file', 'older metadata files')} written over without keys",
            *_shown(erased.metadata_rewritten)[1:],
        ),
    ]


def _shown(locations: Iterable[str]) -> tuple[int, list[str], str]:
    """Return how many files there are, the first names that can be shown, and a sentence about the others."""
    files = _files(locations)
    names = files["names"]
    other = counted(files["other_names"], "file whose name is not shown", "files whose names are not shown") if files["other_names"] else ""
    return files["files"], names[:SHOWN], ", ".join(filter(None, (_more(len(names) - SHOWN), other)))


def _more(number: int) -> str:
    return f"{number:,} more: the certificate in JSON names all" if number > 0 else ""


def _files(locations: Iterable[str]) -> dict[str, Any]:
    # The last part alone, and only if a writer made it up: a folder, and a file that a person named, may show the erased value.
    last = [location.rsplit("/", 1)[-1] for location in locations]
    names = sorted(name for name in last if _MADE_BY_WRITERS.fullmatch(name))
    return {"files": len(last), "names": names, "other_names": len(last) - len(names)}


def _hidden(column: HiddenColumn) -> str:
    values = f"{counted(column.rows, 'row', 'rows')} in {counted(column.files, 'file', 'files')}"
    return f"{column.column} (field id {column.field_id}) under {column.master_key_id}: {values}"


def _state(state: TableState) -> dict[str, Any]:
    # A REST server names metadata files as it likes: such a name is not shown.
    (name,) = _files([state.metadata_location])["names"] or [""]
    return {
        "metadata_file": name,
        "metadata_sha256": state.metadata_sha256,
        "files": state.files,
        "files_sha256": state.files_sha256,
    }
