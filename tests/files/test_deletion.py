"""What may be deleted for a table: below its folders, named as its files are, and spelled in one way alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.errors import ConfigurationError, DeletionRefusedError
from tablecrypt.files.deletion import NOTHING, DeletionScope, Place

TABLE = "s3://bucket/warehouse/db/t"
SCOPE = DeletionScope((TABLE,))
OWN = [
    "data/00000-0-1.parquet",
    "data/team=a%2Fb/00000-0-1.snappy.parquet",
    "data/0101/0110/1010/10101010/x.orc",
    "metadata/00001-x.metadata.json",
    "metadata/00001-x.gz.metadata.json",
    "metadata/v3.metadata.json.gz",
    "metadata/snap-1-1-x.avro",
    "metadata/x-m0.avro",
    "data/deletes.puffin",
    "metadata/x.stats",
    "data/.x.parquet.crc",
    "metadata/tablecrypt-migrate/6dc393b6-7cb6-4bbc-ba31-b7ac2216d371.entries",
    "metadata/tablecrypt-migrate/6dc393b6-7cb6-4bbc-ba31-b7ac2216d371.json",
]
ELSEWHERE = [
    "s3://bucket/warehouse/db/other/data/x.parquet",
    "s3://bucket/warehouse/db/t2/data/x.parquet",
    "s3://bucket/warehouse/db/T/data/x.parquet",
    "s3://other/warehouse/db/t/data/x.parquet",
    "gs://bucket/warehouse/db/t/data/x.parquet",
    "S3://bucket/warehouse/db/t/data/x.parquet",
    "file:///warehouse/db/t/data/x.parquet",
    "/warehouse/db/t/data/x.parquet",
    f"{TABLE}/../other/data/x.parquet",
    f"{TABLE}/data/../../other/data/x.parquet",
    f"{TABLE}/%2e%2e/other/data/x.parquet",
    f"{TABLE}/%252E%252e/other/data/x.parquet",
    f"{TABLE}/data/..%2f..%2fother/x.parquet",
    f"{TABLE}/./data/x.parquet",
    f"{TABLE}//data/x.parquet",
    f"{TABLE}/data/x.parquet/",
    f"{TABLE}/data/*.parquet",
    f"{TABLE}/data/[a-z].parquet",
    f"{TABLE}/data/id_rsa?x.parquet",
    f"{TABLE}/data/id_rsa#x.parquet",
    f"{TABLE}/data/x.parquet\n",
    f"{TABLE}/data\x00/x.parquet",
    f"{TABLE}\\..\\x.parquet",
    TABLE,
    "",
]
FOREIGN_NAMES = ["id_rsa", "data/id_rsa", "data/.parquet", ".ssh/id_ed25519", "data/notes.txt", "metadata/a.json", "data/parquet", "x.crc"]


@pytest.mark.parametrize("below", OWN)
@pytest.mark.parametrize("root", [TABLE, f"{TABLE}/", "file:///data/t", "/data/t"])
def test_the_files_of_a_table_may_go(root: str, below: str) -> None:
    assert DeletionScope((root,)).reason_against(f"{root.rstrip('/')}/{below}") is None


@pytest.mark.parametrize("location", ELSEWHERE)
def test_what_lies_elsewhere_or_is_spelled_in_two_ways_stays(location: str) -> None:
    assert SCOPE.reason_against(location) is not None
    with pytest.raises(DeletionRefusedError) as refused:
        SCOPE.check(location)
    assert refused.value.location == location


@pytest.mark.parametrize("name", FOREIGN_NAMES)
def test_what_is_named_as_no_file_of_a_table_stays(name: str) -> None:
    assert SCOPE.reason_against(f"{TABLE}/{name}") is not None


@pytest.mark.parametrize("other", ["s3a://bucket/warehouse/db/t", "s3n://bucket/warehouse/db/t"])
def test_names_of_one_store_are_one_place(other: str) -> None:
    assert SCOPE.reason_against(f"{other}/data/x.parquet") is None
    assert DeletionScope((other,)).reason_against(f"{TABLE}/data/x.parquet") is None


def test_spellings_of_one_folder_on_a_disk_are_one_place() -> None:
    for folder in ("file:///data/t", "file:/data/t", "/data/t", "/data//t/"):
        for location in ("file:///data/t/x.avro", "file:/data/t/x.avro", "/data/t/x.avro", "file:////data//t/x.avro"):
            assert DeletionScope((folder,)).reason_against(location) is None
    assert DeletionScope(("file:///data/t",)).reason_against("file://host/data/t/x.avro") is not None


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    table, outside = tmp_path / "t", tmp_path / "outside"
    table.mkdir()
    outside.mkdir()
    (table / "data").symlink_to(outside)
    assert "a link leads" in str(DeletionScope((f"file://{table}",)).reason_against(f"file://{table}/data/x.parquet"))


def test_a_table_whose_own_folder_is_a_link_has_its_files(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "t").symlink_to(tmp_path / "real")
    assert DeletionScope((f"file://{tmp_path}/t",)).reason_against(f"file://{tmp_path}/t/data/x.parquet") is None


def test_no_folder_and_a_whole_store_allow_nothing() -> None:
    for scope in (NOTHING, DeletionScope(("s3://bucket",)), DeletionScope(("file:///",)), DeletionScope((f"{TABLE}/../",))):
        assert scope.reason_against(f"{TABLE}/data/x.parquet") is not None


def test_a_caller_names_further_folders_but_not_the_root_of_a_disk() -> None:
    assert NOTHING.and_below([TABLE]).reason_against(f"{TABLE}/data/x.parquet") is None
    assert NOTHING.and_below(TABLE).named == (TABLE,)
    for wrong in ("file:///", "/", f"{TABLE}/..", "s3://bucket/*"):
        with pytest.raises(ConfigurationError):
            NOTHING.and_below([wrong])


@given(st.text(alphabet="./%2eE5\\a?*~", min_size=1, max_size=24))
def test_no_spelling_leads_out_of_the_folder(path: str) -> None:
    import os

    location = f"/data/t/{path}.parquet"
    if DeletionScope(("/data/t",)).reason_against(location) is None:
        assert os.path.normpath(location).startswith("/data/t/")


@given(st.text())
def test_any_text_is_a_place_or_refused(text: str) -> None:
    try:
        Place.of(text)
    except ConfigurationError:
        assert SCOPE.reason_against(text) is not None
