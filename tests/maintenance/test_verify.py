"""Verifying a table: every changed byte is found and named, the rest of the table is looked at all the same."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tablecrypt import parquet
from tablecrypt.errors import ConfigurationError, KmsUnavailableError
from tablecrypt.maintenance import Progress, Verified, verify
from tablecrypt.maintenance.reachable import FileKind, ReachableFile, reachable_files
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.command import ROOT
from tests.support.damaged_later_io import DAMAGED_LATER_IO, damaged_after
from tests.support.full_disk import no_file_beyond
from tests.support.listeners import stopping
from tests.support.tables import (
    MERGE_ON_READ,
    TEAM_SCHEMA,
    encrypted_sql_catalog,
    flip,
    folder_of,
    maintained_table,
    memory_catalog,
    metadata_of,
    new_table,
    path_of,
    put_back,
    rows,
    team_rows,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def table(module_table: Table) -> Iterator[Table]:
    """A table that tests may damage, and must not commit to."""
    with put_back(folder_of(module_table)):
        yield module_table.catalog.load_table("db.rows")


def files_of(table: Table) -> list[ReachableFile]:
    return list(reachable_files(table.metadata, table.io).files.values())


def a_file(table: Table, kind: FileKind) -> ReachableFile:
    return sorted((file for file in files_of(table) if file.kind == kind), key=lambda file: file.location)[0]


def bad_parts(result: Verified) -> dict[str, list[str]]:
    return {file.location: [problem.part for problem in file.problems] for file in result.bad}


def test_an_untouched_table_is_good(table: Table) -> None:
    result = verify(table)

    assert result.is_good
    assert result.files == len(files_of(table)) > 10
    assert result.snapshots == 3
    assert result.bytes == sum(path_of(file.location).stat().st_size for file in files_of(table))
    assert result.parts > result.files


def test_every_reachable_kind_of_file_is_there(table: Table) -> None:
    kinds = {file.kind for file in files_of(table)}

    assert kinds == {FileKind.MANIFEST_LIST, FileKind.MANIFEST, FileKind.DATA, FileKind.DELETION_VECTOR}


@pytest.mark.parametrize("kind", [FileKind.MANIFEST_LIST, FileKind.MANIFEST, FileKind.DATA, FileKind.DELETION_VECTOR])
@pytest.mark.parametrize("offset", [0, 5, 40, -1, -40])
def test_a_flipped_bit_anywhere_is_found_and_the_file_named(table: Table, kind: FileKind, offset: int) -> None:
    target = a_file(table, kind)
    flip(path_of(target.location), offset)

    result = verify(table)

    assert not result.is_good
    assert set(bad_parts(result)) == {target.location}
    assert {file.kind for file in result.bad} == {kind}


@pytest.mark.parametrize("change", ["cut", "lengthened", "emptied", "missing", "swapped"])
@pytest.mark.parametrize("kind", [FileKind.MANIFEST_LIST, FileKind.MANIFEST, FileKind.DATA, FileKind.DELETION_VECTOR])
@pytest.mark.parametrize("full", [True, False])
def test_a_file_that_is_not_the_one_is_found(table: Table, kind: FileKind, change: str, full: bool) -> None:
    target = a_file(table, kind)
    path = path_of(target.location)
    content = path.read_bytes()
    if change == "cut":
        path.write_bytes(content[:-1])
    elif change == "lengthened":
        path.write_bytes(content + b"\0")
    elif change == "emptied":
        path.write_bytes(b"")
    elif change == "missing":
        path.unlink()
    else:
        shutil.copy(
            path_of(a_file(table, FileKind.MANIFEST if kind == FileKind.DELETION_VECTOR else FileKind.DELETION_VECTOR).location), path
        )

    result = verify(table, quick=not full)

    assert target.location in bad_parts(result)


def test_many_bad_files_are_all_named(table: Table) -> None:
    # Other snapshots lead to all that the oldest one's manifest list does.
    damaged = [a_file(table, kind).location for kind in (FileKind.DATA, FileKind.DELETION_VECTOR)]
    damaged.append(table.metadata.snapshots[0].manifest_list)
    for location in damaged:
        flip(path_of(location), 50)

    assert set(bad_parts(verify(table))) == set(damaged)


@pytest.mark.parametrize("kind", [FileKind.MANIFEST_LIST, FileKind.MANIFEST])
def test_a_run_is_not_complete_where_a_bad_file_hides_those_that_it_names(table: Table, kind: FileKind) -> None:
    assert verify(table).is_complete
    flip(path_of(a_file(table, kind).location), 40)
    result = verify(table)
    assert (result.is_complete, result.to_json()["complete"]) == (False, False)


def test_a_bad_file_that_names_no_others_was_checked_too(table: Table) -> None:
    flip(path_of(a_file(table, FileKind.DATA).location), 40)
    result = verify(table)
    assert (result.is_good, result.is_complete) == (False, True)


def test_plaintext_in_place_of_ciphertext_is_found(table: Table) -> None:
    target = path_of(a_file(table, FileKind.DELETION_VECTOR).location)
    target.write_bytes(b"PFA1" + bytes(target.stat().st_size - 4))

    ((file,)) = verify(table).bad

    assert "plaintext Puffin" in file.problems[0].message


def test_a_quick_look_reads_no_whole_file(table: Table) -> None:
    target = a_file(table, FileKind.DELETION_VECTOR)
    flip(path_of(target.location), -20)

    assert verify(table, quick=True).is_good
    assert not verify(table).is_good


def test_a_snapshot_whose_key_does_not_open_is_named_and_the_others_are_verified(table: Table) -> None:
    first = metadata_of(table).snapshots[0]
    entries = [
        key.model_copy(update={"encrypted_key_metadata": "AAAA"}) if key.key_id == first.key_id else key
        for key in metadata_of(table).encryption_keys
    ]
    table.metadata = type(table.metadata).model_validate({**dumped(table), "encryption-keys": [entry.model_dump() for entry in entries]})

    result = verify(table)

    assert set(bad_parts(result)) == {first.manifest_list}
    assert result.files > 5


def test_a_header_that_contradicts_the_metadata_is_found(table: Table) -> None:
    content = dumped(table)
    content["snapshots"][1]["sequence-number"] += 7
    table.metadata = type(table.metadata).model_validate(content)

    ((file,)) = verify(table).bad

    assert file.kind == FileKind.MANIFEST_LIST
    assert "sequence-number" in file.problems[0].message


def dumped(table: Table) -> dict:  # type: ignore[type-arg]
    return json.loads(table.metadata.model_dump_json())  # type: ignore[no-any-return]


def test_progress_ends_at_the_whole(table: Table) -> None:
    steps: list[Progress] = []
    verify(table, progress=steps.append, workers=2)

    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert steps[-1].done == steps[-1].total > 0
    assert {step.unit for step in steps} == {"bytes"}


@pytest.fixture
def interrupted_at_the_end(table: Table, tmp_path: Path) -> Callable[[], Path]:
    """Makes a state file in which every file is noted as good."""

    def run() -> Path:
        state = tmp_path / "state"
        with pytest.raises(KeyboardInterrupt):
            verify(table, progress=stopping(), resume_from=state, workers=1)
        return state

    return run


def test_a_file_that_changed_after_it_was_noted_is_looked_at_again(table: Table, interrupted_at_the_end: Callable[[], Path]) -> None:
    state = interrupted_at_the_end()
    target = a_file(table, FileKind.DATA)
    path_of(target.location).write_bytes(path_of(target.location).read_bytes() + b"\0")

    assert set(bad_parts(verify(table, resume_from=state))) == {target.location}


def test_a_state_file_without_room_for_its_first_line_is_not_left(table: Table, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with no_file_beyond(10), pytest.raises(OSError, match="File too large"):
        verify(table, resume_from=state)

    assert not state.exists()
    assert verify(table, resume_from=state).is_good


def test_a_state_file_under_a_link_that_leads_nowhere_leaves_nothing(table: Table, tmp_path: Path) -> None:
    (tmp_path / "state").symlink_to(tmp_path / "elsewhere")

    assert verify(table, resume_from=tmp_path / "state").is_good
    assert not (tmp_path / "elsewhere").exists()


def test_a_forged_note_is_not_believed(table: Table, tmp_path: Path, interrupted_at_the_end: Callable[[], Path]) -> None:
    target = a_file(table, FileKind.DATA)
    flip(path_of(target.location), 60)
    state = interrupted_at_the_end()
    lines = [json.loads(line) for line in state.read_text().splitlines()]
    noted = lines[1]
    stat = path_of(target.location).stat()
    forged = {**noted, "location": target.location, "length": stat.st_size}
    state.write_text("".join(json.dumps(line) + "\n" for line in [*lines, forged]))

    assert target.location in bad_parts(verify(table, resume_from=state))


@pytest.mark.parametrize(
    "line",
    ["[" * 100_000, '{"location": [], "length": 1, "modified": "", "parts": 1, "full": true, "mac": ""}'],
    ids=["deeply nested", "a list for a text"],
)
def test_a_line_that_nobody_writes_is_passed_over(table: Table, interrupted_at_the_end: Callable[[], Path], line: str) -> None:
    state = interrupted_at_the_end()
    whole = len(state.read_text().splitlines()) - 1
    state.write_text(state.read_text() + line + "\n")

    result = verify(table, resume_from=state)

    assert (result.is_good, result.resumed) == (True, whole)


def test_a_note_of_a_quick_look_does_not_stand_for_a_full_one(table: Table, tmp_path: Path) -> None:
    state = tmp_path / "state"
    target = a_file(table, FileKind.DELETION_VECTOR)
    flip(path_of(target.location), -20)

    with pytest.raises(KeyboardInterrupt):
        verify(table, quick=True, progress=stopping(), resume_from=state, workers=1)
    result = verify(table, resume_from=state)

    assert result.resumed == 0
    assert target.location in bad_parts(result)


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_state_file_that_was_cut_loses_its_last_line_alone(table: Table, interrupted_at_the_end: Callable[[], Path], cut: int) -> None:
    state = interrupted_at_the_end()
    whole = len(state.read_text().splitlines()) - 1
    state.write_bytes(state.read_bytes()[:-cut])

    result = verify(table, resume_from=state)

    assert result.is_good
    assert whole - 2 <= result.resumed <= whole


@pytest.mark.parametrize(
    "content", [b"", b"something else\n", b'{"tablecrypt": "verify", "version": 2, "table-uuid": ""}\n', b"\x00\xff\n[]\n"]
)
def test_a_file_that_is_no_state_file_is_refused_and_kept(table: Table, tmp_path: Path, content: bytes) -> None:
    state = tmp_path / "state"
    state.write_bytes(content)

    with pytest.raises(ConfigurationError, match="is not a state file"):
        verify(table, resume_from=state)
    assert state.read_bytes() == content


def test_the_state_of_another_table_is_refused(table: Table, interrupted_at_the_end: Callable[[], Path]) -> None:
    other = new_table(table.catalog, "db.other", TEAM_SCHEMA)
    state = interrupted_at_the_end()

    with pytest.raises(ConfigurationError, match="another table"):
        verify(other, resume_from=state)


def test_the_state_file_holds_no_key(table: Table, interrupted_at_the_end: Callable[[], Path]) -> None:
    content = interrupted_at_the_end().read_text()

    for file in files_of(table):
        assert file.key is not None
        assert file.key.encryption_key.reveal().hex() not in content


def test_a_key_service_that_is_down_is_not_taken_for_bad_files(aws: AwsServer, table: Table) -> None:
    catalog = table.catalog
    properties = {"kms.endpoint": "http://127.0.0.1:9", "encryption.kms.retry-budget-ms": "0"}
    without_kms = EncryptedSqlCatalog(catalog.name, **{**catalog.properties, **properties})

    with pytest.raises(KmsUnavailableError):
        verify(without_kms.load_table("db.rows"))


def test_a_table_in_a_bucket_is_verified(aws: AwsServer, tmp_path: Path) -> None:
    bucket = aws.bucket("verified")
    table = maintained_table(encrypted_sql_catalog(tmp_path, aws, {"warehouse": f"s3://{bucket}/warehouse"}))

    assert verify(table, resume_from=tmp_path / "state").is_good


def test_a_table_without_snapshots_is_good(table: Table) -> None:
    empty = new_table(table.catalog, "db.empty", TEAM_SCHEMA)

    result = verify(empty)

    assert (result.is_good, result.files) == (True, 0)


def test_what_is_committed_meanwhile_waits_for_the_next_time(aws: AwsServer, warehouse: Path) -> None:
    table = maintained_table(encrypted_sql_catalog(warehouse, aws))
    old = table.catalog.load_table("db.rows")
    table.append(team_rows(500))

    assert verify(old).snapshots == 3
    assert verify(table.refresh()).snapshots == 4


def file_of_every_module(table: Table) -> Path:
    """Add a Parquet file that has every kind of module which Arrow writes, and return its path."""
    path = folder_of(table) / "data" / "every-module.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    key = table.io.manager.new_key_metadata()  # type: ignore[attr-defined]
    content = pa.concat_tables([team_rows(0, 200), team_rows(1000, 200)])
    field_ids = pa.schema([field.with_metadata({"PARQUET:field_id": str(at)}) for at, field in enumerate(content.schema, start=1)])
    options = {
        "write_page_index": True,
        "data_page_size": 200,
        "use_dictionary": ["team"],
        "bloom_filter_options": {"id": {"ndv": 200, "fpp": 0.01}},
    }
    with path.open("wb") as sink:
        parquet.write_table(content.cast(field_ids), sink, parquet.FileKeys.of_table_file(key), row_group_size=200, **options)
    location = f"file://{path}"
    table.add_files([location], key_metadata={location: key.with_file_length(path.stat().st_size)})  # type: ignore[call-arg]
    return path


def test_a_flipped_byte_in_any_module_of_a_parquet_file_is_found(aws: AwsServer, unwatched_warehouse: Path) -> None:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws)
    table = new_table(catalog, "db.modules", TEAM_SCHEMA)
    path = file_of_every_module(table)
    table.refresh()
    (file,) = [file for file in files_of(table) if file.kind == FileKind.DATA]
    assert file.key is not None
    modules = list(parquet.inspect(str(path), parquet.FileKeys.of_table_file(file.key)).modules())
    content = path.read_bytes()
    assert verify(table).is_good

    for module in modules:
        if module.offset is None:
            continue
        for offset in (module.offset, module.offset + 6, module.offset + module.size // 2, module.offset + module.size - 1):
            path.write_bytes(content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :])
            assert set(bad_parts(verify(table))) == {file.location}, (module, offset)

    kinds = {module.type for module in modules}
    assert {
        "bloom filter header",
        "bloom filter bitset",
        "column index",
        "offset index",
        "dictionary page",
        "dictionary page header",
        "data page",
        "data page header",
    } <= kinds


KILLED_AT = """
import json, os, signal, sys
from pyiceberg.catalog import load_catalog
from tablecrypt.maintenance import verify

properties, state, last = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
steps = []

def killing(step):
    steps.append(step)
    if len(steps) == last:
        os.kill(os.getpid(), signal.SIGKILL)

verify(load_catalog("prod", **properties).load_table("db.rows"), progress=killing, workers=1, resume_from=state)
"""


@pytest.mark.parametrize("last", [1, 7])
def test_a_killed_run_goes_on_where_it_was(table: Table, tmp_path: Path, last: int) -> None:
    state = tmp_path / "state"
    properties = {"py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog", **table.catalog.properties}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("", "catalog"))}
    arguments = [sys.executable, "-c", KILLED_AT, json.dumps(properties), str(state), str(last)]

    killed = subprocess.run(arguments, capture_output=True, check=False, timeout=300, env=environment)
    assert state.stat().st_mode & 0o077 == 0
    result = verify(table, resume_from=state)

    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert (result.is_good, result.resumed) == (True, last)
    assert not state.exists()


@pytest.mark.parametrize("openings", range(5))
def test_a_file_that_changes_while_it_is_verified_hides_no_other(tmp_path: Path, openings: int) -> None:
    catalog = memory_catalog(tmp_path, {"py-io-impl": DAMAGED_LATER_IO})
    table = new_table(catalog, appends=[rows(0)], properties=MERGE_ON_READ)
    table.delete("id = 3")
    [task] = catalog.load_table("db.t").scan().plan_files()
    flip(path_of(task.file.file_path), 40)

    with damaged_after(".puffin", openings) as damage:
        found = bad_parts(verify(catalog.load_table("db.t"), workers=1))

    assert task.file.file_path in found
    [vector] = task.delete_files
    assert (vector.file_path in found) == damage.is_damaged
