"""The conformance kit: tablecrypt reads and refuses every case as the manifest says, and the kit is what its builder makes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conformance.run import KIT, Report, install, load_cases, run
from conformance.verdicts import ACCEPTED, DIED, NOT_READ, REFUSED, RIGHT, TOLERATED, UNSUPPORTED, WRONG, judged
from tests.conformance.conftest import Adapters
from tests.support.plaintext_scan import unwatch
from tests.support.selection import need

REPOSITORY = Path(__file__).parents[2]
MOST_BYTES = 6_500_000


@pytest.fixture(scope="module")
def cases(all_cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [case for case in all_cases if case["kind"] != "write"]


def test_tablecrypt_reads_and_refuses_every_case_as_the_manifest_says(cases: list[dict[str, Any]], adapters: Adapters) -> None:
    report = run(adapters["tablecrypt"], cases)

    assert len(report.verdicts) == len(cases)
    assert [each for each in report.verdicts if each.outcome not in (RIGHT, REFUSED)] == []


def test_pyarrow_accepts_a_renamed_cipher_of_required_columns_and_no_other_forgery(cases: list[dict[str, Any]], adapters: Adapters) -> None:
    report = run(adapters["pyarrow"], cases)

    accepted = [each.case["id"] for each in report.verdicts if each.outcome == ACCEPTED]
    assert accepted == [f"parquet-cipher-renamed-required-columns-{length}" for length in (16, 24, 32)]
    assert {each.outcome for each in report.verdicts if each.case["kind"] == "read"} == {RIGHT, UNSUPPORTED}
    assert {TOLERATED} == {each.outcome for each in report.verdicts if each.case.get("needs") and not each.case["column_keys"]}


def test_the_kit_has_cases_of_each_kind_and_level_and_stays_small() -> None:
    cases = json.loads((KIT / "manifest.json").read_text())["cases"]

    assert len({case["id"] for case in cases}) == len(cases) >= 120
    assert {level for (level, kind) in Counter((case["level"], case["kind"]) for case in cases)} == {
        "table",
        "parquet",
        "ags1",
        "key-metadata",
    }
    assert sum(path.stat().st_size for path in (KIT / "cases").rglob("*") if path.is_file()) < MOST_BYTES


def test_a_share_is_read_with_the_partners_key_alone_and_refused_to_who_has_the_owners_alone() -> None:
    shares = [case for case in json.loads((KIT / "manifest.json").read_text())["cases"] if case["id"].startswith("share-")]

    assert {case["keys"][0] for case in shares if case["kind"] == "read"} == {"alias/conformance-partner"}
    assert {"-filtered", "-deletion-vectors", "-updated", "-column-keys"} < {
        case["id"].removeprefix("share").removesuffix("-16") for case in shares
    }
    refused = [case for case in shares if case["kind"] == "refuse"]
    assert [(case["keys"], case["refusal"]) for case in refused] == [(["alias/conformance"], ["key-denied"])] * 3


def test_a_reader_that_gives_rows_of_a_forged_table_is_told_so(tmp_path: Path) -> None:
    case = {"kind": "refuse", "refusal": ["tampered"]}

    assert judged(case, {"result": "rows"}, tmp_path / "out").outcome == ACCEPTED


def test_a_reader_of_manifests_alone_judges_no_table_whose_files_nobody_counted(tmp_path: Path) -> None:
    answer = {"result": "files", "files": 1, "records": 2}

    assert judged({"kind": "read"}, answer, tmp_path / "out").outcome == UNSUPPORTED
    assert judged({"kind": "read", "files": 1, "records": 3}, answer, tmp_path / "out").outcome == WRONG


def test_the_runner_and_the_adapters_of_files_need_no_tablecrypt() -> None:
    program = (
        "import sys; sys.modules['tablecrypt'] = sys.modules['tablecrypt_catalog'] = sys.modules['pyiceberg'] = None\n"
        "import conformance.run, conformance.adapters.pyarrow_reader, conformance.adapters.duckdb_reader, conformance.adapters.plain_python"
    )

    subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, check=True)


def test_the_kit_is_not_copied_over_a_folder_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()

    with pytest.raises(SystemExit, match="no copy of the kit"):
        install(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_a_copy_of_the_kit_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    unwatch(tmp_path)
    root = tmp_path / "kit"
    program = "import resource, sys, pathlib, conformance.run as kit; resource.setrlimit(resource.RLIMIT_FSIZE, (9999, 9999)); "
    command = [sys.executable, "-c", f"{program} kit.install(pathlib.Path(sys.argv[1]))", str(root)]
    cut = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=False)

    assert b"File too large" in cut.stderr
    assert (root / "keys.json").exists()
    assert install(root) == root
    assert (root / "manifest.json").read_bytes() == (KIT / "manifest.json").read_bytes()


def test_the_page_tells_of_a_run_of_these_cases() -> None:
    page = (REPOSITORY / "docs" / "conformance.md").read_text()
    cases = json.loads((KIT / "manifest.json").read_text())["cases"]

    assert f"has {len(cases)} cases" in page
    for reader in ("tablecrypt", "pyarrow", "DuckDB", "parquet-java", "Iceberg Java", "Trino", "plain Python"):
        assert f"\n## {reader} " in page


def test_who_lacks_the_key_of_a_column_is_asked_for_the_others_and_for_this_one() -> None:
    cases = {case["id"]: case for case in json.loads((KIT / "manifest.json").read_text())["cases"]}

    for name in (name for name in cases if name.startswith("column-keys-") and name.endswith("-without-its-key")):
        whole, denied = name.removesuffix("-without-its-key"), cases[name.replace("-without-its-key", "-denied")]
        assert cases[whole]["metadata"] == cases[name]["metadata"] == denied["metadata"]
        assert (cases[name]["keys"], denied["keys"]) == (["alias/conformance"], ["alias/conformance"])
        assert "team" in denied["columns"] and "team" not in cases[name]["columns"]


def not_read(report: Report) -> list[str]:
    """Tables without right rows, of those that are not for readers with an extension."""
    concerned = (each for each in report.verdicts if each.case["kind"] == "read" and not each.case.get("needs"))
    return [each.case["id"] for each in concerned if each.outcome != RIGHT]


def column_outcomes(report: Report) -> set[str]:
    """What came of tables with column keys for who has none of them."""
    concerned = (each for each in report.verdicts if "column-keys" in each.case["id"] and not each.case.get("needs"))
    return {each.outcome for each in concerned}


ACCEPTED_BY_OTHERS = [
    # Both take the cipher from the file, which nothing authenticates.
    "forged-data-file-cipher-renamed-required-columns-16",
    # Of these the specification asks nobody.
    "forged-snapshot-names-an-older-list-16",
    "forged-column-names-swapped-16",
]


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.usefixtures("java_runtime")
@pytest.mark.parametrize("length", [16, *(pytest.param(length, marks=pytest.mark.campaign) for length in (24, 32))])
def test_iceberg_java_reads_every_table_and_accepts_three_forgeries(adapters: Adapters, length: int) -> None:
    report = run(adapters["iceberg-java"], [case for case in load_cases(install()) if f"-{length}" in case["id"]])

    assert not_read(report) == []
    assert column_outcomes(report) == {RIGHT, REFUSED}
    accepted = [each.case["id"] for each in report.verdicts if each.outcome in (ACCEPTED, DIED)]
    assert accepted == [name for name in ACCEPTED_BY_OTHERS if name.endswith(f"-{length}")]


@pytest.mark.trino
def test_trino_reads_every_table_without_deletion_vectors_and_avro_and_accepts_three_forgeries(
    adapters: Adapters,
) -> None:
    from tests.support.trino import trino_problem

    need(trino_problem())
    report = run(adapters["trino"], load_cases(install()))

    assert not_read(report) == [
        *(f"{kind}-{length}" for kind in ("deletion-vectors", "avro-data") for length in (16, 24, 32)),
        "share-deletion-vectors-16",
        *(f"column-keys-deletion-vectors-{length}-without-its-key" for length in (16, 24, 32)),
    ]
    assert column_outcomes(report) == {RIGHT, REFUSED, NOT_READ, UNSUPPORTED}
    assert [each.case["id"] for each in report.verdicts if each.outcome in (ACCEPTED, DIED)] == ACCEPTED_BY_OTHERS


@pytest.mark.services
def test_iceberg_rust_opens_every_table_s_manifests_and_looks_at_no_length_and_no_header_of_a_stream(adapters: Adapters) -> None:
    from tests.services.programs import problem_without

    need(problem_without("iceberg-rust", "cargo"))
    report = run(adapters["iceberg-rust"], load_cases(install()))

    assert [each for each in report.verdicts if each.case["kind"] == "read" and each.outcome != RIGHT] == []
    assert [each.case["id"] for each in report.verdicts if each.outcome in (ACCEPTED, DIED)] == [
        "forged-snapshot-names-an-older-list-16",
        *(f"ags1-{name}" for name in ("cut-at-a-block", "header-alone", "other-block-length", "other-magic")),
        *("ags1-file-length-too-long", "ags1-file-length-too-short", "key-metadata-bytes-behind", "key-metadata-key-of-15-bytes"),
    ]


@pytest.mark.slow
def test_the_builder_makes_the_committed_bytes(tmp_path: Path) -> None:
    unwatch(tmp_path)

    subprocess.run([sys.executable, "-m", "conformance.build", str(tmp_path)], cwd=REPOSITORY, check=True)

    built, committed = contents(tmp_path), contents(KIT)
    # By their names: pytest would print the bytes of all the others too.
    assert {name for name in built.keys() | committed.keys() if built.get(name) != committed.get(name)} == set()


def contents(kit: Path) -> dict[str, bytes]:
    files = [*(kit / "cases").rglob("*"), kit / "manifest.json", kit / "keys.json"]
    return {str(path.relative_to(kit)): path.read_bytes() for path in files if path.is_file()}
