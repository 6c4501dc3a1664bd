"""Who writes as the kit asks is told so, and who writes plaintext, a nonce twice, a DEK twice or what nobody can read is found out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from conformance import written
from conformance.run import Reader
from conformance.streams import BLOCK, KeyMetadata, NotAuthenticError, StreamError, decrypt_stream, encrypt_stream, stream_length
from conformance.verdicts import NOT_READ, RIGHT, UNSUPPORTED
from conformance.writers import NOT_WRITTEN, UNJUDGED, WriteReport, judge, page_of_writers, write
from tests.conformance.conftest import Adapters
from tests.support.selection import need

BAD = Path(__file__).with_name("bad_writer.py")


@pytest.fixture(scope="module")
def cases(all_cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [case for case in all_cases if case["kind"] == "write"]


@pytest.fixture(scope="module")
def readers(adapters: Adapters) -> dict[str, Reader]:
    """Those that need no Java."""
    return {name: adapters[name] for name in ("plain-python", "pyarrow", "duckdb", "tablecrypt")}


@pytest.fixture(scope="module")
def bad_writer() -> Iterator[Reader]:
    writer = Reader(BAD)
    yield writer
    writer.stop()


def report_of(writer: Reader, cases: list[dict[str, Any]], folder: Path, readers: list[Reader]) -> WriteReport:
    report = write(writer, cases, folder)
    for reader in readers:
        judge(report, reader)
    return report


def outcomes(report: WriteReport) -> dict[str, str]:
    return {verdict.case["id"]: verdict.summary.outcome for verdict in report.verdicts}


def named(cases: list[dict[str, Any]], *patterns: str) -> list[dict[str, Any]]:
    return [case for case in cases if any(fnmatch(case["id"], pattern) for pattern in patterns)]


def test_tablecrypt_writes_every_case_right(cases: list[dict[str, Any]], readers: dict[str, Reader], tmp_path: Path) -> None:
    report = report_of(readers["tablecrypt"], cases, tmp_path, [*readers.values()])

    stored_prefix = [f"write-parquet-stored-aad-prefix-{length}" for length in (16, 24, 32)]
    assert len(report.verdicts) == len(cases)
    assert {name: outcome for name, outcome in outcomes(report).items() if outcome != RIGHT} == dict.fromkeys(
        stored_prefix, f"{NOT_READ} by DuckDB"
    )
    for verdict in report.verdicts:
        assert verdict.read["tablecrypt"].outcome == RIGHT
    by_pyarrow = [each.case["id"] for each in report.verdicts if each.read.get("pyarrow", each.summary).outcome == UNSUPPORTED]
    assert all("column-keys" in each for each in by_pyarrow)


def test_others_write_files_that_tablecrypt_and_pyarrow_read_but_duckdb(
    cases: list[dict[str, Any]], readers: dict[str, Reader], tmp_path: Path
) -> None:
    chosen = named(cases, "*-16")
    for name, wrong in {"pyarrow": set[str](), "plain-python": set[str](), "duckdb": {f"{NOT_READ} by tablecrypt, pyarrow"}}.items():
        report = report_of(readers[name], chosen, tmp_path / name, [readers["tablecrypt"], readers["pyarrow"]])

        assert set(outcomes(report).values()) - {UNSUPPORTED, RIGHT} == wrong
        assert any(each.written for each in report.verdicts)


@pytest.mark.parametrize(
    ("fault", "case", "outcome"),
    [
        ("plaintext", "write-ags1-1048577-16", written.PLAINTEXT),
        ("plaintext", "write-parquet-footer-key-16", written.PLAINTEXT),
        ("plaintext", "write-appends-16", written.PLAINTEXT),
        ("same_nonces", "write-ags1-1048577-16", written.NONCE_TWICE),
        ("same_nonces", "write-parquet-ctr-16", written.NONCE_TWICE),
        ("same_nonces", "write-parquet-plaintext-footer-16", written.NONCE_TWICE),
        ("same_dek", "write-appends-16", written.DEK_TWICE),
        ("short_dek", "write-appends-32", written.OTHER_DEK_LENGTH),
        ("no_aad_prefix", "write-ags1-1048577-16", f"{NOT_READ} by plain Python, tablecrypt"),
        ("no_aad_prefix", "write-parquet-footer-key-16", f"{NOT_READ} by pyarrow, tablecrypt"),
        ("aad_prefix_not_in_the_file", "write-parquet-stored-aad-prefix-16", written.PREFIX_NOT_STORED),
        ("aad_prefix_in_the_file", "write-parquet-footer-key-16", written.PREFIX_STORED),
        ("cut", "write-ags1-1048577-16", written.NO_SUCH_FORMAT),
        ("cut", "write-ags1-1048575-16", written.OTHER_LENGTH),
        ("cut", "write-ags1-0-16", written.NO_SUCH_FORMAT),
        ("cut", "write-parquet-footer-key-16", written.NO_SUCH_FORMAT),
        ("cut", "write-key-metadata-whole-16", written.OTHER_BYTES),
        ("one_block_too_few", "write-ags1-1048577-16", written.OTHER_LENGTH),
        ("column_in_the_clear", "write-parquet-footer-key-16", written.NO_SUCH_FORMAT),
        ("other_spelling", "write-key-metadata-key-alone-16", written.OTHER_BYTES),
        ("nothing", "write-appends-16", written.FORGOTTEN),
        ("right", "write-parquet-footer-key-16", RIGHT),
        ("right", "write-appends-32", RIGHT),
    ],
)
def test_what_is_wrong_with_a_writer_is_said(
    cases: list[dict[str, Any]],
    readers: dict[str, Reader],
    bad_writer: Reader,
    unwatched_warehouse: Path,
    fault: str,
    case: str,
    outcome: str,
) -> None:
    chosen = [each | {"fault": fault} for each in named(cases, case)]
    judges = [each for name, each in readers.items() if name != "duckdb"]

    assert outcomes(report_of(bad_writer, chosen, unwatched_warehouse / "written", judges)) == {case: outcome}


def test_what_no_judge_read_is_not_called_right(cases: list[dict[str, Any]], readers: dict[str, Reader], tmp_path: Path) -> None:
    chosen = named(cases, "write-parquet-column-keys-16")
    report = report_of(readers["tablecrypt"], chosen, tmp_path, [readers["pyarrow"], readers["duckdb"]])

    assert outcomes(report) == {"write-parquet-column-keys-16": UNJUDGED}


def test_the_page_has_a_row_for_each_writer_and_a_column_for_each_judge(
    cases: list[dict[str, Any]], readers: dict[str, Reader], bad_writer: Reader, unwatched_warehouse: Path
) -> None:
    chosen = [each | {"fault": "plaintext"} for each in named(cases, "write-ags1-1048577-16", "write-parquet-footer-key-16")]
    report = report_of(bad_writer, chosen, unwatched_warehouse / "w", [readers["pyarrow"]])

    page = "\n".join(page_of_writers([report]))
    assert "| writer | level | cases | written | sound | read by pyarrow |" in page
    assert "| bad writer 0 | parquet | 1 | 1 | 0 | 0, 1 not read |" in page
    assert "| bad writer | plaintext | `the file has the text" in page


def test_streams_and_key_metadata_of_the_kit_are_those_of_the_specification() -> None:
    key = KeyMetadata(bytes(range(16)), b"prefix", 12345)
    assert key.encode() == b"\x01\x20" + bytes(range(16)) + b"\x02\x0cprefix" + b"\x02\xf2\xc0\x01"
    assert KeyMetadata.decode(key.encode()) == key
    for wrong in (b"", key.encode() + b"\0", key.encode()[:-1], b"\x02" + key.encode()[1:]):
        with pytest.raises(StreamError):
            KeyMetadata.decode(wrong)

    plain = bytes(BLOCK) + b"last"
    unknown_length = KeyMetadata(key.key, key.aad_prefix)
    stream = encrypt_stream(plain, unknown_length)
    assert len(stream) == stream_length(len(plain))
    assert decrypt_stream(stream, unknown_length) == plain
    with pytest.raises(NotAuthenticError):
        decrypt_stream(stream, KeyMetadata(key.key, b"other"))
    with pytest.raises(StreamError, match="key metadata says"):
        decrypt_stream(stream, KeyMetadata(key.key, key.aad_prefix, len(stream) + 1))


SHORT = ("write-appends-32", "write-identity-partitions-16", "write-merge-on-read-delete-24", "write-evolved-schema-16", "write-nested-16")


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.usefixtures("java_runtime")
@pytest.mark.parametrize("names", [pytest.param(SHORT[1:3], id="two"), pytest.param(SHORT, id="all", marks=pytest.mark.campaign)])
def test_iceberg_java_and_tablecrypt_read_what_the_other_writes(
    cases: list[dict[str, Any]], adapters: Adapters, tmp_path: Path, names: tuple[str, ...]
) -> None:
    chosen, both = named(cases, *names), adapters.those("iceberg-java", "tablecrypt")
    for writer in both:
        report = report_of(writer, chosen, tmp_path / writer.hello["name"], both)

        assert outcomes(report) == {case["id"]: RIGHT for case in chosen}
        assert all(each.read.keys() == {"Iceberg Java", "tablecrypt"} for each in report.verdicts)


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.usefixtures("java_runtime")
def test_parquet_java_writes_files_that_others_read(cases: list[dict[str, Any]], adapters: Adapters, tmp_path: Path) -> None:
    report = report_of(adapters["parquet-java"], named(cases, "write-parquet-*-24"), tmp_path, adapters.those("tablecrypt", "pyarrow"))

    assert set(outcomes(report).values()) == {RIGHT, UNSUPPORTED}
    assert [name for name, outcome in outcomes(report).items() if outcome == UNSUPPORTED] == ["write-parquet-many-row-groups-24"]


@pytest.mark.trino
def test_trino_reads_what_tablecrypt_writes_but_deletion_vectors_and_writes_no_encrypted_table(
    cases: list[dict[str, Any]], adapters: Adapters, tmp_path: Path
) -> None:
    from tests.support.trino import trino_problem

    need(trino_problem())
    chosen = named(cases, *SHORT)
    refused = write(adapters["trino"], chosen, tmp_path / "trino")
    report = report_of(adapters["tablecrypt"], chosen, tmp_path / "ours", [adapters["trino"]])

    assert outcomes(refused) == {case["id"]: UNSUPPORTED if "nested" in case["id"] else NOT_WRITTEN for case in chosen}
    messages = {each.summary.message for each in refused.verdicts if each.summary.outcome == NOT_WRITTEN}
    assert all("Writing to encrypted Iceberg tables is not supported" in message for message in messages)
    read_by_trino = {case["id"]: f"{NOT_READ} by Trino" if "merge-on-read" in case["id"] else RIGHT for case in chosen}
    assert outcomes(report) == read_by_trino


def test_cases_of_kind_write_hold_no_encrypted_file(cases: list[dict[str, Any]]) -> None:
    assert {case["level"] for case in cases} == {"table", "parquet", "ags1", "key-metadata"}
    for case in cases:
        assert {"folder", "file", "metadata"}.isdisjoint(case)
        json.dumps(case)
