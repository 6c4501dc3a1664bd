"""What may be deleted for a table: below its folders, named as its files are, and spelled in one way alone."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.errors import ConfigurationError, DeletionRefusedError
from tablecrypt.files.deletion import NOTHING, DeletionScope, ParsedLocation, names_location, place_of, store_of

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


@pytest.mark.parametrize("scheme", ["file://", ""])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_may_be_deleted_but_not_written_over(tmp_path: Path, scheme: str, is_there: bool) -> None:
    table, backup = tmp_path / "t", tmp_path / "backup.metadata.json"
    table.mkdir()
    if is_there:
        backup.write_bytes(b"{}")
    (table / "link.metadata.json").symlink_to(backup)
    (table / "file.metadata.json").write_bytes(b"{}")
    scope = DeletionScope((f"{scheme}{table}",))
    assert scope.reason_against(f"{scheme}{table}/link.metadata.json") is None
    assert scope.reason_against_writing_over(f"{scheme}{table}/link.metadata.json") == f"is a link, which leads to {backup}"
    assert scope.reason_against_writing_over(f"{scheme}{table}/file.metadata.json") is None


def test_what_may_not_be_deleted_may_not_be_written_over() -> None:
    for location in ELSEWHERE:
        assert SCOPE.reason_against_writing_over(location) == SCOPE.reason_against(location)
    assert SCOPE.reason_against_writing_over(f"{TABLE}/{OWN[0]}") is None


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


@pytest.mark.parametrize(
    ("location", "store", "authority", "names"),
    [
        ("s3a://bucket/a/b", "s3", "bucket", ("a", "b")),
        ("s3://bucket/a/b/", "s3", "bucket", ("a", "b")),
        ("s3://bucket//a", "s3", "bucket", ("", "a")),
        ("s3://bucket/X", "s3", "bucket", ("X",)),
        ("s3://bucket/Xa/bX", "s3", "bucket", ("Xa", "bX")),
        ("s3://bucket", "s3", "bucket", ()),
        ("s3://bucket/", "s3", "bucket", ()),
        ("s3://bucket//", "s3", "bucket", ()),
        ("abfss://box@account/a", "abfs", "box@account", ("a",)),
        ("hdfs:///a/b", "hdfs", "", ("a", "b")),
        ("memory:/a", "memory", "", ("a",)),
        ("/a//b/", "file", "", ("a", "b")),
        ("/data/a:b/c", "file", "", ("data", "a:b", "c")),
        ("file:/a", "file", "", ("a",)),
        ("file:", "file", "", ()),
    ],
)
def test_a_location_is_taken_apart_in_one_way(location: str, store: str, authority: str, names: tuple[str, ...]) -> None:
    assert ParsedLocation.of(location) == ParsedLocation(store, authority, names)


def test_a_path_without_scheme_lies_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ParsedLocation.of("data/a:b/c") == ParsedLocation.of(f"{tmp_path}/data/a:b/c")
    assert DeletionScope(("t",)).reason_against(f"file://{tmp_path}/t/x.parquet") is None


def test_a_folder_is_not_below_itself_nor_below_what_it_holds() -> None:
    folder, file = ParsedLocation.of(TABLE), ParsedLocation.of(f"{TABLE}/data/x.parquet")
    assert file.below(folder) == ("data", "x.parquet")
    assert folder.below(folder) is None
    assert folder.below(file) is None


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("s3:///a", "'s3:///a' names no bucket"),
        ("gs:/a", "'gs:/a' names no bucket"),
        ("file://host/a", "'file://host/a' names a host, but a local file has no host"),
        ("a_b://bucket/x", "'a_b://bucket/x' is no location"),
        ("s3://b/*", "'s3://b/*' contains a character with a special meaning in locations"),
        ("s3://b/../x", "'s3://b/../x' goes up, or nowhere, in its path"),
    ],
)
def test_what_is_no_place_says_why(location: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        ParsedLocation.of(location)
    assert str(refused.value) == problem
    assert SCOPE.reason_against(location) == problem.removeprefix(f"{location!r} ")


def test_the_refusal_says_what_holds_the_file_back() -> None:
    scope = DeletionScope((TABLE, "s3://bucket/more"), ("s3://named",))
    reasons = {
        f"{TABLE}/data/": "is a folder",
        f"{TABLE}//x.parquet": "has an empty name in its path",
        f"{TABLE}/id_rsa": "does not have the name of a table's file",
        "s3://bucket/x.parquet": f"lies outside the table's folders: {TABLE}, s3://bucket/more, s3://named",
    }
    assert {location: scope.reason_against(location) for location in reasons} == reasons
    for location, reason in reasons.items():
        with pytest.raises(DeletionRefusedError) as refused:
            scope.check(location)
        assert reason in str(refused.value)


def test_a_folder_of_metadata_that_cannot_be_read_leaves_the_others() -> None:
    for wrong in (f"{TABLE}/..", "s3://bucket"):
        assert DeletionScope((wrong, TABLE)).reason_against(f"{TABLE}/data/x.parquet") is None


def test_a_caller_may_name_a_folder_of_the_disk_and_a_whole_bucket() -> None:
    assert NOTHING.and_below("/data/t").reason_against("/data/t/x.parquet") is None
    assert NOTHING.and_below("s3://bucket").reason_against(f"{TABLE}/data/x.parquet") is None
    with pytest.raises(ConfigurationError, match=r"'/' is the root of the disk: name a table's folder"):
        NOTHING.and_below("/")
    with pytest.raises(ConfigurationError, match="delete_below"):
        NOTHING.and_below(b"/data/t")  # type: ignore[arg-type]


def test_a_file_that_somebody_needs_stays_however_it_is_spelled() -> None:
    unusable = ("s3://", "file://host/data/t/x.parquet", f"{TABLE}/../x.parquet")
    kept = SCOPE.keeping({f"{TABLE}/data/a b.parquet": "is named by a share"}).keeping(
        dict.fromkeys((f"{TABLE}/data/c.parquet", *unusable), "too")
    )

    for spelled in (f"{TABLE}/data/a b.parquet", f"{TABLE}/data/a%20b.parquet", "s3a://bucket/warehouse/db/t/data/a b.parquet"):
        assert kept.reason_against(spelled) == "is named by a share"
    assert kept.reason_against(f"{TABLE}/data/c.parquet") == "too"
    assert kept.reason_against(f"{TABLE}/data/b.parquet") is None


@pytest.mark.parametrize(
    ("metadata_location", "is_named"),
    [
        (f"{TABLE}/metadata/v1.metadata.json", True),
        ("s3a://bucket/warehouse/db/t/metadata/v1.metadata.json", True),
        (f"{TABLE}/v1.metadata.json", False),
        (f"{TABLE}/data/v1.metadata.json", False),
        (f"{TABLE}/metadata/deeper/v1.metadata.json", False),
        ("s3://bucket/warehouse/db/other/metadata/v1.metadata.json", False),
        (f"{TABLE}/metadata/../metadata/v1.metadata.json", False),
    ],
)
def test_a_metadata_file_says_where_its_table_lies_by_its_own_folder_alone(metadata_location: str, is_named: bool) -> None:
    assert names_location(metadata_location, TABLE) is is_named


def test_an_empty_name_is_not_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is not set makes one, and so may metadata."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="names a folder that is blank"):
        NOTHING.and_below("")
    assert DeletionScope(("",)).reason_against(f"{tmp_path}/x.parquet") is not None


def test_a_scope_holds_its_folders_and_what_is_below_them() -> None:
    assert SCOPE.contains(TABLE)
    assert SCOPE.contains("s3a://bucket/warehouse/db/t/data/")
    for outside in ("s3://bucket/warehouse/db", f"{TABLE}2", f"{TABLE}/../t", "s3:///a", "/"):
        assert not SCOPE.contains(outside)
    assert not NOTHING.contains(TABLE)
    assert DeletionScope(("s3://other/t", TABLE)).contains(TABLE)


def test_all_spellings_of_a_location_are_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path.resolve()
    (here / "t").mkdir()
    (here / "link").symlink_to(here / "t")
    monkeypatch.chdir(here)
    local = (f"file://{here}/t/a b", f"file:{here}/t/a%20b", f"{here}//t/./a b", f"{here}/link/a b", "t/a b", f"FILE://{here}/x/../t/a b")
    assert {place_of(each) for each in local} == {("file", "", f"{here}/t/a b".lstrip("/"))}

    stored = ("s3://bucket/t/k", "s3a://bucket/t/k", "s3n://bucket//t/k", "s3://bucket/t/./k", "s3://bucket/t/x/../k", "S3://bucket/t/%6b")
    assert {place_of(each) for each in stored} == {("s3", "bucket", "t/k")}
    assert place_of("s3://other/t/k") != place_of("s3://bucket/t/k") != place_of("s3://bucket/t/K")


@given(st.text() | st.text(alphabet="s3file:/.%2[]\0\udc80#?", max_size=20).map("file://".__add__))
def test_every_text_has_one_place(location: str) -> None:
    store, authority, path = place_of(location)
    if store != "file":
        assert place_of(f"{store}://{authority}/{quote(path)}") == (store, authority, path)


def test_a_store_has_one_scheme() -> None:
    assert [store_of(scheme) for scheme in ("", "s3n", "abfss", "gs")] == ["file", "s3", "abfs", "gs"]


@given(st.text(alphabet="./%2eE5\\a?*~", min_size=1, max_size=24))
def test_no_spelling_leads_out_of_the_folder(path: str) -> None:
    import os

    location = f"/data/t/{path}.parquet"
    if DeletionScope(("/data/t",)).reason_against(location) is None:
        assert os.path.normpath(location).startswith("/data/t/")


@given(st.text())
def test_any_text_is_a_place_or_refused(text: str) -> None:
    try:
        ParsedLocation.of(text)
    except ConfigurationError:
        assert SCOPE.reason_against(text) is not None
