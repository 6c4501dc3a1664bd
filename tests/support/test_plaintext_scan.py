"""The scan of the whole run: it must find what was planted, or its silence means nothing."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tablecrypt.testing.plaintext import MAGICS
from tests.support.aws import AwsServer
from tests.support.inner_pytest import run_inner
from tests.support.plaintext import CANARY, encrypted_table_root, findings
from tests.support.plaintext_scan import Registry

pytestmark = pytest.mark.slow

CIPHERTEXT = bytes(range(256)) * 4


def _write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _table(folder: Path, properties: dict[str, str]) -> Path:
    _write(folder / "metadata" / "00000-a.metadata.json", json.dumps({"format-version": 3, "properties": properties}).encode())
    _write(folder / "data" / "a.parquet", b"PARE" + CIPHERTEXT)
    return folder


def _found(registry: Registry) -> list[str]:
    return [str(finding) for finding in registry.scan().found]


@pytest.mark.parametrize("magic", MAGICS)
def test_a_plaintext_magic_is_found(magic: bytes) -> None:
    assert [finding.what for finding in findings("a", magic + CIPHERTEXT)] == [f"begins as plaintext {MAGICS[magic]}"]


@pytest.mark.parametrize("magic", [b"PARE", b"AGS1", b"", b"PAR", b"\0PAR1"])
def test_ciphertext_is_let_through(magic: bytes) -> None:
    assert not list(findings("a", magic + CIPHERTEXT if magic else magic))


@pytest.mark.parametrize("before", [b"", b"x", b"xx", b"xxx"])
@pytest.mark.parametrize(
    "encode",
    [bytes, base64.b64encode, lambda text: text.hex().encode(), lambda text: text.decode().encode("utf-16-le")],
    ids=["raw", "base64", "hex", "utf-16"],
)
def test_a_canary_is_found_however_it_is_written(encode: Callable[[bytes], bytes], before: bytes) -> None:
    assert list(findings("a", CIPHERTEXT + encode(before + CANARY.encode()) + CIPHERTEXT))


def test_a_canary_cut_to_a_manifest_bound_is_found() -> None:
    bound = CANARY[:15] + chr(ord(CANARY[15]) + 1)

    assert list(findings("a", CIPHERTEXT + bound.encode()))


@pytest.mark.parametrize("name", ["00001-a.gz.metadata.json", "00001-a.metadata.json.gz"])
def test_a_canary_in_gzipped_metadata_is_found(name: str) -> None:
    assert list(findings(name, gzip.compress(json.dumps({"comment": CANARY}).encode())))


def test_every_file_of_a_watched_folder_is_looked_at(tmp_path: Path) -> None:
    registry = Registry()
    registry.watch(tmp_path)
    planted = _write(tmp_path / "deep" / "down" / "a.bin", b"PAR1" + CIPHERTEXT)
    _write(tmp_path / "fine.bin", CIPHERTEXT)

    assert _found(registry) == [f"{planted}: begins as plaintext Parquet"]
    assert registry.scan().files == 2


def test_a_link_is_read_as_the_file_that_it_leads_to_and_one_that_leads_nowhere_holds_nothing(tmp_path: Path) -> None:
    registry = Registry()
    watched = tmp_path / "watched"
    registry.watch(watched)
    _write(watched / "fine.bin", CIPHERTEXT)
    link = watched / "link.metadata.json"
    link.symlink_to(_write(tmp_path / "elsewhere.bin", b"PAR1" + CIPHERTEXT))
    (watched / "nowhere.metadata.json").symlink_to(tmp_path / "missing")
    (watched / "circle.metadata.json").symlink_to(watched / "circle.metadata.json")

    assert _found(registry) == [f"{link}: begins as plaintext Parquet"]


def test_an_encrypted_table_is_found_without_being_watched(unwatched_warehouse: Path) -> None:
    registry = Registry()
    registry.search_tables_in(unwatched_warehouse)
    table = _table(unwatched_warehouse / "db" / "orders", {"encryption.key-id": "k"})
    planted = _write(table / "metadata" / "m0.avro", b"Obj\x01" + CIPHERTEXT)

    assert _found(registry) == [f"{planted}: begins as plaintext Avro"]
    assert registry.scan().tables == 1


def test_a_table_that_promises_no_encryption_is_left_alone(tmp_path: Path) -> None:
    registry = Registry()
    registry.search_tables_in(tmp_path)
    table = _table(tmp_path / "plain", {})
    _write(table / "data" / "b.parquet", b"PAR1" + CIPHERTEXT)

    assert not _found(registry)


def test_an_unwatched_folder_is_left_alone_even_below_a_watched_one(tmp_path: Path) -> None:
    registry = Registry()
    registry.watch(tmp_path)
    registry.unwatch(tmp_path / "tampered")
    _write(tmp_path / "tampered" / "a.parquet", b"PAR1" + CIPHERTEXT)
    planted = _write(tmp_path / "tampered-not" / "a.parquet", b"PAR1" + CIPHERTEXT)

    assert _found(registry) == [f"{planted}: begins as plaintext Parquet"]


def test_objects_of_encrypted_tables_and_watched_prefixes_in_s3_are_looked_at(aws: AwsServer) -> None:
    bucket = aws.bucket("scanned-by-its-own-test")
    metadata = json.dumps({"properties": {"encryption.key-id": "k"}}).encode()
    planted = {"t/metadata/0.metadata.json": metadata, "t/data/a.parquet": b"PAR1", "w/a.avro": b"Obj\x01", "elsewhere/a.parquet": b"PAR1"}
    for key, content in planted.items():
        aws.s3.put_object(Bucket=bucket, Key=key, Body=content)
    registry = Registry()
    registry.search_tables_in(aws.s3)
    registry.watch(f"s3://{bucket}/w/")

    found = [line for line in _found(registry) if bucket in line]

    for key in planted:
        aws.s3.delete_object(Bucket=bucket, Key=key)
    assert found == [f"s3://{bucket}/t/data/a.parquet: begins as plaintext Parquet", f"s3://{bucket}/w/a.avro: begins as plaintext Avro"]


@pytest.mark.parametrize("content", [b"", b"not json", b"[]", b'{"properties": null}', b"\x1f\x8bcut"])
def test_broken_metadata_is_no_table(content: bytes) -> None:
    assert encrypted_table_root("/w/t/metadata/0.metadata.json", content) is None


PLANTING_TEST = """
def test_that_plants(warehouse):
    (warehouse / "a.parquet").write_bytes(b"PAR1....")

def test_that_does_not():
    pass
"""
CLEAN_TEST = """
def test_that_writes_ciphertext(warehouse, unwatched_warehouse):
    (warehouse / "a.parquet").write_bytes(b"PARE....")
    (unwatched_warehouse / "a.parquet").write_bytes(b"PAR1....")
"""


def _run(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a suite of its own, with the plugin."""
    return run_inner(folder, "-p", "tests.support.plaintext_scan", *options, test=test)


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_planted_plaintext_fails_the_run(tmp_path: Path, options: tuple[str, ...]) -> None:
    run = _run(tmp_path, PLANTING_TEST, *options)

    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout
    assert "a.parquet: begins as plaintext Parquet" in run.stdout
    assert "2 passed, 1 error" in run.stdout


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_a_clean_run_passes_and_says_how_much_was_looked_at(tmp_path: Path, options: tuple[str, ...]) -> None:
    run = _run(tmp_path, CLEAN_TEST, *options)

    assert run.returncode == pytest.ExitCode.OK, run.stdout
    assert "plaintext scan: 1 files looked at" in run.stdout
