"""What people read after each command: a sentence, then details that matter, and no word of the code."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt import maintenance
from tablecrypt.cli._output import show
from tablecrypt.files.stores import StoredFile
from tablecrypt.maintenance.expiry import ExpiredSnapshots
from tablecrypt.maintenance.operation import OperationResult
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.command import Command, run
from tests.support.plaintext import CANARY
from tests.support.tables import key_file_kms

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "ssn", StringType()))
WORDS_OF_THE_CODE = ("twin", "in line", "gone", "unused", "cover", "none", "dry run", "resumed", "pruned", "retired", "_", "None")

GOLDEN = {
    "rotate-kek db.people --dry-run": [
        "Would replace 1 KEK of db.people by a new one, and wrap 3 manifest-list keys under it.",
        "  KEKs that it replaces  <key>",
    ],
    "rotate-kek db.people": [
        "Replaced 1 KEK of db.people by a new one, and wrapped 3 manifest-list keys under it.",
        "  new KEK                <key>",
        "  KEKs that it replaces  <key>",
    ],
    "rotate-kek db.empty": ["db.empty has no KEK yet: its next commit makes one."],
    "rotate-kek db.people --columns": [
        "Replaced 1 KEK of columns of db.people, and wrapped 1 column key again.",
        "  new KEKs, by master key  pii: <key>",
        "  KEKs that they replace   <key>",
    ],
    "rotate-kek --include *": [
        "db.empty has no KEK yet: its next commit makes one.",
        "Replaced 1 KEK of db.people by a new one, and wrapped 3 manifest-list keys under it.",
        "  new KEK                <key>",
        "  KEKs that it replaces  <key>",
        "db.plain: not encrypted, left as it is",
        "3 tables: 2 done, 0 failed, 1 not encrypted",
    ],
    "rewrap db.people": ["Wrapped 1 KEK of db.people again under the newest version of master key orders.", "  KEKs  <key>"],
    "rewrap db.people --columns": [
        "Wrapped 1 KEK of columns of db.people again under the newest versions of their master keys.",
        "  KEKs, by master key  pii: <key>",
    ],
    "rewrap db.empty": ["db.empty has no KEK that a snapshot needs: nothing was wrapped."],
    "prune-keys db.people": ["Every key of db.people is needed: nothing was removed, and 7 entries of encryption-keys stay."],
    "reencrypt db.people --dry-run": ["Would re-encrypt 2 data files of db.people (<size>) under fresh keys."],
    "reencrypt db.people": ["Re-encrypted 2 data files of db.people (<size>) under fresh keys.", "  new snapshot  <id>"],
    "reencrypt db.people --older-than 2d": ["No file of db.people had to be re-encrypted."],
    "compact db.people --min-input-files 100": [
        "Nothing in db.people was worth rewriting.",
        "  files with deletes left as they are, below the delete ratio (--apply-deletes rewrites them)  1",
    ],
    "compact db.people --rewrite-all --dry-run": [
        "Would rewrite 2 data files of db.people (<size>), in 1 group.",
        "  delete files that nothing needs any more  1",
    ],
    "compact db.people --rewrite-all": [
        "Rewrote 2 data files of db.people (<size>) as 1 (<size>).",
        "  delete files that nothing needs any more  1",
        "  new snapshots                             <id>",
    ],
    "rescue db.people": ["db.people lacks no key: nothing was put back."],
    "relocate db.people <folder>/copy --as db.copy": [
        "Copied db.people to <folder>/copy (3 data and delete files, <size>).",
        "  metadata       <folder>/copy/metadata/<file>",
        "  registered as  db.copy",
        "  master key     orders",
        "  snapshots      3",
    ],
    "share db.people --to partner --location <folder>/share --dry-run": [
        "Would share 2 files of db.people (19 rows, <size>) with partner at <folder>/share.",
        "  columns that the partner can read             id",
        "  columns that stay closed to him               ssn",
        "  deleted rows that files hold still, readable  1",
    ],
    "share db.people --to partner --location <folder>/share": [
        "Shared 2 files of db.people (19 rows, <size>) with partner at <folder>/share.",
        "  metadata                                      <folder>/share/metadata/<file>",
        "  metadata written                              <size>",
        "  columns that the partner can read             id",
        "  columns that stay closed to him               ssn",
        "  deleted rows that files hold still, readable  1",
    ],
    "shares db.people": [
        "db.people has 1 live share.",
        "  shares:",
        "    <uuid>: 2 files, to partner since <time>, at <folder>/share",
    ],
    "unshare db.people <folder>/share --dry-run": [
        "Would end share <uuid> of db.people; the keys of 2 files that partner opened are known to whoever kept them.",
        "  to end that  tablecrypt --catalog prod reencrypt db.people --shared-with <uuid> now, before it ends; "
        "then expire the snapshots that name the old files, and remove orphans",
        "  files of the table whose keys the partner had:",
        "    <folder>/warehouse/db/people/data/<file>",
        "    <folder>/warehouse/db/people/data/<file>",
    ],
    "unshare db.people <folder>/share --yes": [
        "Ended share <uuid> of db.people; the keys of 2 files that partner opened are known to whoever kept them.",
        "  to end that  tablecrypt --catalog prod reencrypt db.people --older-than <time> (in Python, exactly these files: "
        "reencrypt(table, files=unshared.files)); "
        "then expire the snapshots that name the old files, and remove orphans",
        "  files of the table whose keys the partner had:",
        "    <folder>/warehouse/db/people/data/<file>",
        "    <folder>/warehouse/db/people/data/<file>",
    ],
    "shares db.empty": ["db.empty has no live share."],
    "migrate db.plain --key-id orders --dry-run": ["Would encrypt 1 file of db.plain (<size>), and delete 3 plaintext files."],
    "migrate db.plain --key-id orders --yes": [
        "Encrypted 1 file of db.plain (<size>), and deleted 3 plaintext files.",
        "  snapshot  <id>",
        "  plaintext that may still exist:",
        "    <folder>/warehouse/db/plain/metadata/<file> (metadata from before it was encrypted, <size>)",
        "    <folder>/warehouse/db/plain/metadata/<file> (metadata from before it was encrypted, <size>)",
    ],
    "migrate db.unwritten --key-id orders --yes": [
        "No file of db.unwritten had to be encrypted.",
        "  plaintext that may still exist:",
        "    <folder>/warehouse/db/unwritten/metadata/<file> (metadata from before it was encrypted, <size>)",
    ],
    "orphans db.people --dry-run": ["No file was found that does not belong to db.people."],
    "orphans db.people --older-than 0d --dry-run": [
        "Found 1 file that does not belong to db.people (9 B).",
        "  files:",
        "    <folder>/warehouse/db/people/data/<file> (9 B)",
    ],
    "orphans db.people --older-than 0d --yes": [
        "Found 1 file that does not belong to db.people (9 B), and deleted 1.",
        "  files:",
        "    <folder>/warehouse/db/people/data/<file> (9 B)",
    ],
}


@pytest.fixture
def folder(unwatched_warehouse: Path) -> Path:
    return unwatched_warehouse


@pytest.fixture
def command(folder: Path) -> Iterator[Command]:
    kms = key_file_kms(folder / "a.keys", "orders", "pii", "partner")
    properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse", **kms}
    catalog = EncryptedSqlCatalog("prod", **properties)
    catalog.create_namespace("db")
    people = catalog.create_table("db.people", SCHEMA, properties={"encryption.key-id": "orders", "encryption.column-keys": "pii: ssn"})
    for first in (0, 10):
        people.append(rows(first))
    people.delete("id = 3")
    catalog.create_table("db.empty", SCHEMA, properties={"encryption.key-id": "orders"})
    catalog.create_table("db.plain", SCHEMA).append(rows(0))
    yield Command({"py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog", **properties})
    catalog.close()


def rows(first: int) -> pa.Table:
    return pa.table({"id": range(first, first + 10), "ssn": [CANARY] * 10})


def shown(lines: str, folder: Path) -> list[str]:
    """What was printed, without what differs from run to run."""
    for pattern, name in (
        (re.escape(f"file://{folder}"), "<folder>"),
        (r"[\w-]+\.(metadata\.json|parquet)", "<file>"),
        (r"[\w+/-]{22}==", "<key>"),
        (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uuid>"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[+-]\d\d:\d\d", "<time>"),
        (r"\b\d{16,19}\b", "<id>"),
        (r"\b[\d.]+ (kB|MB)|\b\d{2,3} B\b", "<size>"),
    ):
        lines = re.sub(pattern, name, lines)
    return lines.splitlines()


@pytest.mark.parametrize("line", GOLDEN)
def test_a_command_says_what_it_did_in_a_sentence(command: Command, folder: Path, line: str) -> None:
    prepare(command, folder, line)
    done = command.run(*line.replace("<folder>", f"file://{folder}").split())

    assert (done.code, done.stderr) == (0, "")
    assert shown(done.stdout, folder) == GOLDEN[line]
    without_names = re.sub(r"<\w+>", "", "\n".join(shown(done.stdout, folder)))
    assert [word for word in WORDS_OF_THE_CODE if word in without_names] == []
    assert fields_dumped(without_names) == []


def prepare(command: Command, folder: Path, line: str) -> None:
    if line.startswith("orphans") and "0d" in line:
        (folder / "warehouse/db/people/data/left.parquet").write_bytes(b"left over")
    if line.startswith(("shares db.people", "unshare")):
        command.run("share", "db.people", "--to", "partner", "--location", f"file://{folder}/share")
    if "unwritten" in line:
        catalog = EncryptedSqlCatalog("prod", **command.properties)
        catalog.create_table("db.unwritten", SCHEMA)
        catalog.close()


def fields_dumped(text: str) -> list[str]:
    """Lines that begin as a field of a result does in a dump: its name, a colon and a value."""
    names = {field.name.replace("_", " ") for each in OperationResult.__subclasses__() for field in dataclasses.fields(each)}
    return [line for line in text.splitlines() if line.partition(":")[0] in names]


def test_every_result_of_a_command_has_a_sentence() -> None:
    """Expiry has no command; erase and shred print what they did by themselves."""
    elsewhere = {ExpiredSnapshots, maintenance.Erased, maintenance.Shredded, maintenance.ShreddedColumn}
    results = [each for each in OperationResult.__subclasses__() if each not in elsewhere]

    assert len(results) >= 9
    assert [each.__name__ for each in results if not hasattr(each, "summary")] == []


RARE: dict[str, tuple[OperationResult, list[str]]] = {
    "lost keys that were found": (
        maintenance.Rescued("db.t", False, (7, 8), ("a", "b"), ("file:///m/1.json",), (), (), {"file:///m/2.json": "cut\x1b[2J"}),
        [
            "Put 2 lost keys of db.t back into its metadata.",
            "  keys found in                        file:///m/1.json",
            "  metadata files that could not be read  file:///m/2.json: cut\\x1b[2J",
            "  snapshots that can be read again:",
            "    7",
            "    8",
        ],
    ),
    "keys that are nowhere": (
        maintenance.Rescued("db.t", True, (), (), (), (7,), (), {}),
        ["Would remove 1 snapshot of db.t whose keys are nowhere.", "  snapshots removed, since their keys are nowhere  7"],
    ),
    "keys that were removed": (
        maintenance.PrunedKeys("db.t", False, ("a",), ("b", "c", "d", "e"), ("f",), 1),
        [
            "Removed 6 keys of db.t that no snapshot needs; 1 entry of encryption-keys stays.",
            "  KEKs                a",
            "  manifest-list keys  4 (--json lists them)",
            "  declarations        f",
        ],
    ),
    "an interrupted re-encryption": (
        maintenance.Reencrypted(
            "db.t", False, 1200, 1, 12_345_678, resumed=1100, gone=1, snapshot_id=7, unused=("a",), in_line=2, twins_kept=3
        ),
        [
            "Re-encrypted 1,200 data files and 1 delete file of db.t (12.3 MB) under fresh keys.",
            "  files of an earlier run that was interrupted                 1,100",
            "  files left out, since others removed them in the meantime    1",
            "  new snapshot                                                 7",
            "  new files that are not part of the table; orphans deletes them  a",
            "  files whose protected columns are now as declared            2",
            "  files with a protected column left as it is, for lack of its key  3",
        ],
    ),
    "files that cannot be deleted": (
        maintenance.OrphanFiles(
            "db.t", False, (StoredFile("s3://b/a", 10, None),), (), {"s3://b/a": "AccessDenied"}, {"s3://c/a": "is elsewhere"}
        ),
        [
            "Found 1 file that does not belong to db.t (10 B), and deleted 0.",
            "  files                                              s3://b/a (10 B)",
            "  could not be deleted                               s3://b/a: AccessDenied",
            "  not deleted, since they need not be the table's or are shared  s3://c/a: is elsewhere",
        ],
    ),
}


@pytest.mark.parametrize("what", RARE)
def test_what_happens_seldom_is_said_too(capsys: pytest.CaptureFixture[str], what: str) -> None:
    result, lines = RARE[what]
    show(result, as_json=False)

    assert [" ".join(each.split()) for each in capsys.readouterr().out.splitlines()] == [" ".join(each.split()) for each in lines]


def test_json_has_every_field_under_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    show(RARE["keys that were removed"][0], as_json=True)

    assert json.loads(capsys.readouterr().out) == {
        "table": "db.t",
        "dry_run": False,
        "keks": ["a"],
        "manifest_list_keys": ["b", "c", "d", "e"],
        "declarations": ["f"],
        "kept": 1,
    }


def test_files_without_a_table_say_what_became_of_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    keys = ("--key-file", "k.keys", "--key-id", "orders")

    assert run("keygen", *keys).stdout == "Created the key file k.keys with master key orders. Keep a copy of it in a safe place.\n"
    assert run("keygen", "--key-file", "k.keys", "--key-id", "pii").stdout == (
        "Added master key pii to k.keys. Keep a copy of the file in a safe place.\n"
    )
    assert run("keygen", *keys, "--new-version").stdout == "Added version 2 of master key orders to k.keys: it wraps from now on.\n"
    pq.write_table(rows(0), "a.parquet")
    assert shown(run("encrypt-file", "a.parquet", "a.enc", *keys, "--dry-run").stdout, folder) == [
        "Would encrypt <file> (<size>) into a.enc."
    ]
    assert shown(run("encrypt-file", "a.parquet", "a.enc", *keys).stdout, folder) == [
        "Encrypted <file> into a.enc (<size>). Its key is in a.enc.key.json: keep both files."
    ]
    assert shown(run("decrypt-file", "a.enc", "b", *keys, "--dry-run").stdout, folder) == ["Would decrypt a.enc (<size>) into b."]
    assert shown(run("decrypt-file", "a.enc", "b", *keys).stdout, folder) == ["Decrypted a.enc into b (<size>)."]
    token = run("hadoop-kms-token", "--token-file", "etl.token").stdout
    assert re.fullmatch(r'Wrote a token to etl\.token\. For the allow list: token-sha256 = \["[0-9a-f]{64}"\]\n', token)
