"""The certificate of an erasure: counts, hashes and what stays; first of all whether it is complete; and no value of the erased rows."""

from __future__ import annotations

import dataclasses
import json
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tablecrypt.errors import ConfigurationError, TablecryptError
from tablecrypt.maintenance import erase
from tablecrypt.maintenance.erasure.certificate import certificate_json, certificate_page, check_certificate_path, write_certificate
from tablecrypt.maintenance.erasure.result import Erased, HiddenColumn, Searched
from tablecrypt.maintenance.reachable import reachable_files
from tests.maintenance.test_audit_page import EVIL, Page
from tests.support.aws import AwsServer
from tests.support.damaged_later_io import DAMAGED_LATER_IO, damaged_after
from tests.support.erased_table import EXPORT, VALUE, data_file, erased_table, unfinished
from tests.support.plaintext import CANARY
from tests.support.tables import (
    PARTITION_FOLDERS,
    encrypted_sql_catalog,
    encrypted_table,
    flip,
    folder_of,
    maintained_table,
    memory_catalog,
    new_table,
    rows,
)

FORMS: Final[tuple[Callable[[Erased], str], ...]] = (certificate_json, certificate_page)
COMPLETE: Final[dict[str, Any]] = {"remaining": {}, "not_searched": {}, "refused": {}, "failed": {}, "hidden_columns": ()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("erased", [erased_table(), unfinished()], ids=["complete", "unfinished"])
def test_no_value_of_the_row_or_of_the_filter_is_in_it(form: Callable[[Erased], str], erased: Erased) -> None:
    text = form(erased)

    assert CANARY in str(erased)
    assert VALUE not in text
    assert CANARY not in text
    assert "customer_id = ? and name = ?" in text


@pytest.mark.parametrize(
    ("name", "is_shown"),
    [
        (data_file(7), True),
        ("s3://b/t/data/00003-12-5b0c0000-0000-4000-8000-000000000007-00001.parquet", True),
        ("s3://b/t/data/00000-5b0c0000-0000-4000-8000-000000000007-deletes.puffin", True),
        ("s3://b/t/metadata/snap-8312456709123-0-5b0c0000-0000-4000-8000-000000000007.avro", True),
        ("s3://b/t/metadata/5b0c0000-0000-4000-8000-000000000007-m0.avro", True),
        ("s3://b/t/metadata/00041-5b0c0000-0000-4000-8000-000000000007.gz.metadata.json", True),
        (EXPORT, False),
        ("s3://b/t/data/5b0c0000-0000-4000-8000-000000000007.parquet", False),
        (f"s3://b/t/data/customer_id={VALUE}", False),
        (f"s3://b/t/data/00000-7-5b0c0000-0000-4000-8000-000000000007-{VALUE}.parquet", False),
        (f"s3://b/t/data/{VALUE}-00000-7-5b0c0000-0000-4000-8000-000000000007.parquet", False),
        ("", False),
    ],
)
def test_only_names_that_writers_make_are_shown(name: str, is_shown: bool) -> None:
    erased = dataclasses.replace(erased_table(), deleted=(name,))

    deleted = json.loads(certificate_json(erased))["deleted"]

    assert (deleted["files"], deleted["other_names"]) == (1, int(not is_shown))
    assert deleted["names"] == ([name.rsplit("/", 1)[-1]] if is_shown else [])
    assert (name.rsplit("/", 1)[-1] in certificate_page(erased)) == (is_shown or not name)


def test_real_tables_have_such_names(warehouse: Path, aws: AwsServer) -> None:
    """All files of a table, as each of its writers names them."""
    table = maintained_table(encrypted_sql_catalog(warehouse, aws))
    names = [str(path) for path in folder_of(table).rglob("*") if path.is_file()]

    deleted = json.loads(certificate_json(dataclasses.replace(erased_table(), deleted=tuple(names))))["deleted"]

    assert len(names) > 10
    assert deleted["other_names"] == 0


def test_a_complete_erasure_says_what_went_what_was_searched_and_what_stays() -> None:
    shown = Page(certificate_page(erased_table())).shown

    for said in (
        "The rows are erased.",
        "4 May 2026, 03:02 UTC",
        "24 rows that could be read, and 3 that deletes hid already",
        "main branch 12 3 2, 48 MB 8312456709123650118 4301997214452077263",
        "audit-2026 tag",
        "98 data and 4 delete files, 4.8 GB",
        "9,999,988 rows",
        "none Files that still hold something of the rows",
        "19 snapshots",
        "1 KEK that opened them",
        "62 files deleted, 71 MB",
        "and 21 more: the certificate in JSON names all, 1 file whose name is not shown",
        "The bucket keeps 4 older versions of metadata files",
        "ab" * 32,
        "34" * 32,
    ):
        assert said in shown


def test_the_json_says_the_same() -> None:
    said = json.loads(certificate_json(erased_table()))

    assert (said["complete"], said["verdict"].partition(".")[0]) == (True, "The rows are erased")
    assert said["deleted"]["files"] == 62
    assert said["deleted"]["names"] == sorted(said["deleted"]["names"])
    assert len(said["snapshots"]) == 19
    assert said["searched"]["rows"] == 9_999_988
    assert said["before"] == {
        "metadata_file": "00041-5b0c0000-0000-4000-8000-00000000004d.metadata.json",
        "metadata_sha256": "ab" * 32,
        "files": 118,
        "files_sha256": "cd" * 32,
    }
    assert said["not_reached"] == list(erased_table().outside)


@pytest.mark.parametrize(
    ("left", "sentence"),
    [
        ({"remaining": {data_file(1): "rows"}}, "1 file still holds something of the rows: run the same erasure again."),
        ({"failed": {data_file(1): "", data_file(2): ""}}, "2 files could not be deleted or written over: grant the permission"),
        ({"not_searched": {data_file(1): ""}}, "1 file could not be searched: do what the run's result says"),
        ({"refused": {data_file(1): ""}}, "1 file was left, since it need not be the table's: allow the folders"),
        (
            {"hidden_columns": (HiddenColumn("ssn", 3, "alias/pii", 2, 12),)},
            "Encrypted values of 1 protected column stay: let somebody who may use their master key",
        ),
    ],
)
def test_what_is_left_to_do_is_the_first_sentence(left: dict[str, Any], sentence: str) -> None:
    erased = dataclasses.replace(erased_table(), **{**COMPLETE, **left})
    page = Page(certificate_page(erased)).shown

    assert f"The erasure is not complete. {sentence}" in page
    assert page.index("The erasure is not complete.") < page.index("What was erased")
    assert "The rows are erased" not in page
    said = json.loads(certificate_json(erased))
    assert (said["complete"], said["verdict"].startswith(f"The erasure is not complete. {sentence}")) == (False, True)


def test_an_erasure_that_found_nothing_says_so() -> None:
    nothing = dataclasses.replace(erased_table(), refs=(), snapshots=(), deleted=(), deleted_bytes=0, searched=Searched(2, 98))

    assert "There was nothing to erase." in Page(certificate_page(nothing)).shown


@pytest.mark.parametrize("form", FORMS)
def test_a_dry_run_gets_no_certificate(form: Callable[[Erased], str], tmp_path: Path) -> None:
    tried = dataclasses.replace(erased_table(), dry_run=True)

    with pytest.raises(ConfigurationError, match=r"a dry run erased nothing of db\.people"):
        form(tried)
    with pytest.raises(ConfigurationError, match=r"a dry run erased nothing of db\.people"):
        write_certificate(tried, tmp_path / "certificate.html")
    assert not list(tmp_path.iterdir())


def test_names_of_others_are_text() -> None:
    evil = dataclasses.replace(
        unfinished(),
        table=EVIL,
        shape=EVIL,
        refs=tuple(dataclasses.replace(each, name=EVIL) for each in unfinished().refs),
        retired_keks=(EVIL,),
        outside=(EVIL,),
        hidden_columns=(HiddenColumn(EVIL, 3, EVIL, 2, 12),),
    )

    page = Page(certificate_page(evil))

    assert not page.open
    assert not {tag for tag, _ in page.tags} & {"script", "img"}
    assert '<script>alert("x")</script>' in page.shown
    for form in FORMS:
        assert not re.search("[\x1b\u202e]", form(evil))


def test_the_ending_of_the_name_says_what_is_written_for_its_owner_alone(tmp_path: Path) -> None:
    for name, form in (("certificate.json", certificate_json), ("certificate.HTML", certificate_page)):
        write_certificate(erased_table(), tmp_path / name)

        assert (tmp_path / name).read_text(encoding="utf-8") == form(erased_table())
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("certificate", "the name must end in .html or .json"),
        ("certificate.pdf", "the name must end in .html or .json"),
        ("nowhere/certificate.html", "there is no folder"),
        ("there.json", "exists already: name another file$"),
        ("/proc/certificate.json", "no file can be written in /proc"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_before_the_erasure(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "there.json").write_bytes(b"another")

    for attempt in (check_certificate_path, lambda path: write_certificate(erased_table(), path)):
        with pytest.raises(ConfigurationError, match=message):
            attempt(tmp_path / name)
    assert (tmp_path / "there.json").read_bytes() == b"another"


def test_the_certificate_of_a_table_partitioned_by_the_persons_name_does_not_name_them(warehouse: Path, aws: AwsServer) -> None:
    table = maintained_table(encrypted_sql_catalog(warehouse, aws, PARTITION_FOLDERS), properties=PARTITION_FOLDERS)
    erased = erase(table, f"team = 'north' and note = '{CANARY} 2'")

    assert erased.is_complete
    assert any("team=?" in location for location in erased.deleted)
    for form in FORMS:
        text = form(erased)
        assert "team = ? and note = ?" in text
        assert "north" not in text
        assert CANARY not in text


@pytest.mark.parametrize("openings", range(16, 30))
def test_a_manifest_that_changes_during_an_erasure_makes_no_certificate_of_fewer_files(tmp_path: Path, openings: int) -> None:
    catalog = memory_catalog(tmp_path, {"py-io-impl": DAMAGED_LATER_IO})
    table = new_table(catalog, appends=[rows(0), rows(50)], properties={"write.delete.mode": "copy-on-write"})

    with damaged_after("-m0.avro", openings) as damage:
        try:
            erased = erase(table, "id = 3")
        except TablecryptError as refused:
            assert damage.damaged is not None and damage.damaged.name in str(refused)
            return

    if damage.damaged is not None and damage.damaged.exists():
        flip(damage.damaged, -30)
    after = encrypted_table(catalog.load_table("db.t"))
    assert not erased.is_complete or erased.after.files == len(reachable_files(after.metadata, after.io).files)
