"""Integrity manifests: every byte of a file is checked, whatever is read of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablecrypt import orc
from tablecrypt.errors import (
    AuthenticationError,
    ConfigurationError,
    FormatError,
    KeyMismatchError,
    KeyNotFoundError,
    TablecryptError,
    TamperedFileError,
)
from tablecrypt.orc.integrity_manifest import BLOCK_LENGTH, CACHED_BLOCKS, CheckedSource, FileHasher, IntegrityManifest
from tablecrypt.orc.source import FileSource
from tests.support.mutations import flipped, mutations
from tests.support.orc_files import encrypted, local_keys, repeatable_keys, same_rows, sample_rows, vector, vector_keys

pytestmark = pytest.mark.slow

NAME = "part-0.orc"
ROWS = sample_rows(50)
DATA = encrypted(ROWS, {"pii": ["text"]})
MANIFEST = orc.create_integrity_manifest({NAME: DATA}, local_keys(), "other")


def read(data: bytes, manifest: bytes = MANIFEST, name: str | None = NAME, **options: Any) -> pa.Table:
    return orc.read_table(data, local_keys(), manifest=manifest, name=name, **options)


def test_a_file_of_a_manifest_reads() -> None:
    assert same_rows(read(DATA), ROWS)
    assert orc.verify(DATA, local_keys(), manifest=MANIFEST, name=NAME).authenticated


def test_no_flipped_bit_changes_a_row() -> None:
    """One bit in every byte: the whole of this file is one block, so every flip is refused."""
    for at in range(len(DATA)):
        changed = flipped(DATA, at, at * 3 % 8)
        with pytest.raises(TamperedFileError, match="differ from the manifest"):
            read(changed)


def test_without_a_manifest_a_flipped_bit_is_not_always_seen() -> None:
    """Why there are manifests: the cipher alone lets changed values through."""
    rows = pa.table({"number": pa.array(range(1000), pa.int64())})
    data = encrypted(rows, {"pii": ["number"]}, repeatable_keys(), compression="uncompressed")
    unseen = 0
    for at in range(3, 300):
        changed = flipped(data, at)
        try:
            unseen += orc.read_table(changed, local_keys()).to_pydict() != rows.to_pydict()
        except TablecryptError:
            continue
    assert unseen > 0


@pytest.mark.parametrize("changed", [DATA[:-1], DATA + b"\0", b"", DATA * 2])
def test_another_length_is_refused(changed: bytes) -> None:
    with pytest.raises(TamperedFileError, match=f"{len(changed)} bytes.*{len(DATA)}"):
        read(changed)


def test_another_file_of_the_same_manifest_is_refused() -> None:
    other = encrypted(ROWS, {"pii": ["text"]})
    manifest = orc.create_integrity_manifest({"a": DATA, "b": other}, local_keys(), "other")
    assert same_rows(read(other, manifest, "b"), ROWS)
    with pytest.raises(TamperedFileError):
        read(other, manifest, "a")


def test_a_projection_checks_what_it_reads_and_fetches_no_more() -> None:
    wide = pa.table({f"c{number}": [f"{number} {row * 7919 % 100_003}" for row in range(20_000)] for number in range(20)})
    data = encrypted(wide, {"pii": ["c1", "c18"]}, compression="uncompressed")
    manifest = orc.create_integrity_manifest({NAME: data}, local_keys(), "other")
    changed = flipped(data, len(data) // 10)
    whole: list[pa.Table] = []
    last: list[pa.Table] = []
    for columns, result in ((None, whole), (["c18"], last)):
        try:
            result.append(read(changed, manifest, columns=columns))
        except TamperedFileError:
            continue
    assert not whole
    assert last[0]["c18"].to_pylist() == wide["c18"].to_pylist()


def test_a_changed_or_foreign_manifest_is_refused() -> None:
    document = json.loads(MANIFEST)
    digests = document["files"][NAME]["blocks"]
    changes: list[dict[str, Any]] = [
        {"files": {NAME: {**document["files"][NAME], "length": len(DATA) - 1}}},
        {"files": {NAME: {**document["files"][NAME], "blocks": digests[:-4] + ("AAA=" if digests[-4:] != "AAA=" else "BBB=")}}},
        {"files": {NAME: {**document["files"][NAME], "mac": "00" * 32}}},
        {"files": {"another.orc": document["files"][NAME]}},
        {"files": {}},
        {"mac": "00" * 32},
        {"mac": ""},
        {"key": {**document["key"], "encrypted": "AAAAAAAAAAAAAAAAAAAAAA=="}},
    ]
    for change in changes:
        with pytest.raises(AuthenticationError, match="the manifest"):
            IntegrityManifest.open(json.dumps({**document, **change}).encode(), local_keys())


def test_a_key_that_fits_no_entry_is_told_from_a_changed_entry() -> None:
    manifest = orc.create_integrity_manifest({"a": DATA, "b": DATA}, local_keys(), "other")
    document = json.loads(manifest)
    document["files"]["a"]["mac"] = "00" * 32
    with pytest.raises(TamperedFileError, match="the entry of 'a' was changed"):
        IntegrityManifest.open(json.dumps(document).encode(), local_keys())
    with pytest.raises(KeyMismatchError, match="no entry matches the provider's key"):
        IntegrityManifest.open(manifest, orc.LocalKeys({"pii": [bytes(16)], "other": [bytes(16)]}))


def test_a_file_cannot_be_taken_out_of_a_manifest() -> None:
    document = json.loads(orc.create_integrity_manifest({"a": DATA, "b": DATA}, local_keys(), "other"))
    del document["files"]["b"]
    with pytest.raises(TamperedFileError, match="added or removed"):
        IntegrityManifest.open(json.dumps(document).encode(), local_keys())


@pytest.mark.parametrize(
    "change",
    [
        {"format": "x"},
        {"version": 2},
        {"key": None},
        {"key": {}},
        {"key": {"name": "other", "version": True, "length": 16, "encrypted": ""}},
        {"key": {"name": "other", "version": 0, "length": 24, "encrypted": ""}},
        {"key": {"name": "other", "version": 0, "length": 16, "encrypted": "?"}},
        {"key": {"name": "other", "version": 0, "length": 16, "encrypted": 5}},
        {"files": [1]},
        {"files": {NAME: None}},
        {"files": {NAME: {"length": -1, "blocks": "", "mac": ""}}},
        {"files": {NAME: {"length": 5, "blocks": "", "mac": ""}}},
        {"files": {NAME: {"length": 0, "blocks": "", "mac": "no"}}},
        {"files": {"\ud800": {"length": 0, "blocks": "", "mac": ""}}},
    ],
)
def test_a_manifest_that_is_none_is_a_format_error(change: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="the manifest"):
        IntegrityManifest.open(json.dumps({**json.loads(MANIFEST), **change}).encode(), local_keys())


@given(st.binary(max_size=200) | st.integers(0, len(MANIFEST) - 1).map(lambda at: MANIFEST[:at]) | st.just(b"[" * 100_000))
def test_arbitrary_bytes_are_no_manifest(data: bytes) -> None:
    with pytest.raises(FormatError):
        IntegrityManifest.open(data, local_keys())


@given(mutations([MANIFEST]))
def test_a_changed_manifest_is_refused_or_read(data: bytes) -> None:
    try:
        IntegrityManifest.open(data, local_keys())
    except TablecryptError as error:
        assert str(error)


def test_who_has_another_key_of_the_reader_makes_no_manifest_for_bytes_that_they_changed() -> None:
    changed = encrypted(sample_rows(3), {"pii": ["text"]})
    own = orc.create_integrity_manifest({NAME: changed}, local_keys("pii"), "pii")

    with pytest.raises(KeyMismatchError, match="was made with the key 'pii', and not with 'other'"):
        read(changed, own, manifest_key="other")
    with pytest.raises(KeyMismatchError, match="was made with the key 'pii'"):
        orc.verify(changed, local_keys(), manifest=own, name=NAME, manifest_key="other")
    with pytest.raises(KeyMismatchError, match="was made with the key 'pii'"):
        list(orc.read_batches(changed, local_keys(), manifest=own, name=NAME, manifest_key="other"))
    assert same_rows(read(DATA, manifest_key="other"), ROWS)


def test_a_key_of_a_manifest_that_was_forgotten_is_no_unchecked_read() -> None:
    with pytest.raises(ConfigurationError, match="manifest_key is given, and no manifest"):
        orc.read_table(DATA, local_keys(), manifest_key="other")


def test_a_manifest_needs_its_key_and_the_right_name() -> None:
    with pytest.raises(KeyNotFoundError, match="no key provider"):
        orc.read_table(DATA, manifest=MANIFEST, name=NAME, masked=True)
    with pytest.raises(KeyNotFoundError, match="other"):
        orc.read_table(DATA, local_keys("pii"), manifest=MANIFEST, name=NAME)
    with pytest.raises(KeyNotFoundError, match=r"'nope\.orc'"):
        read(DATA, name="nope.orc")
    with pytest.raises(KeyNotFoundError, match="no file ''"):
        read(DATA, name=None)


def test_files_join_a_manifest_while_they_are_written(tmp_path: Path) -> None:
    writer = orc.IntegrityManifestWriter(local_keys(), "other")
    for number in range(3):
        path = tmp_path / f"part-{number}.orc"
        orc.write_table(sample_rows(300, number), path, encrypt={"pii": ["text"]}, keys=local_keys(), stripe_size=10_000, manifest=writer)
    manifest = writer.finish()
    for number in range(3):
        path = tmp_path / f"part-{number}.orc"
        assert same_rows(orc.read_table(path, local_keys(), manifest=manifest), sample_rows(300, number))
        assert orc.verify(path, local_keys(), manifest=manifest).authenticated
    paths = sorted(tmp_path.glob("*.orc"))
    again, first = (
        IntegrityManifest.open(one, local_keys()).entries for one in (orc.create_integrity_manifest(paths, local_keys(), "other"), manifest)
    )
    assert again == first
    with pytest.raises(ConfigurationError, match="already"):
        orc.write_table(ROWS, paths[0], encrypt={"pii": ["text"]}, keys=local_keys(), manifest=writer)
    with pytest.raises(ConfigurationError, match="needs a name"):
        encrypted(ROWS, {"pii": ["text"]}, manifest=writer)


def test_two_files_of_one_name_are_refused_unless_they_are_given_by_name(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "part-0.orc" for folder in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        path.write_bytes(DATA)
    with pytest.raises(ConfigurationError, match=r"has a file 'part-0\.orc' already"):
        orc.create_integrity_manifest(paths, local_keys(), "other")
    by_name = {f"{path.parent.name}/{path.name}": path for path in paths}
    manifest = orc.create_integrity_manifest(by_name, local_keys(), "other")
    assert list(IntegrityManifest.open(manifest, local_keys()).entries) == ["a/part-0.orc", "b/part-0.orc"]


def test_a_manifest_lists_files_that_java_wrote() -> None:
    manifest = orc.create_integrity_manifest([vector("flat_zlib")], local_keys(), "other")

    class Both(orc.LocalKeys):
        def decrypt_local_key(self, master: orc.MasterKeyVersion, encrypted: bytes) -> Any:
            return (local_keys() if master.name == "other" else vector_keys()).decrypt_local_key(master, encrypted)

    verified = orc.verify(vector("flat_zlib"), Both({}), manifest=manifest)
    assert (verified.authenticated, verified.rows, verified.opened) == (True, 3000, ("ssn", "email"))


@settings(max_examples=60)
@given(st.data())
def test_any_ranges_of_a_checked_file_are_those_of_the_file(data: st.DataObject) -> None:
    content = bytes(range(251)) * (BLOCK_LENGTH * (CACHED_BLOCKS + 3) // 251)
    digest = FileHasher()
    digest.update(content[:1000])
    digest.update(content[1000:])
    source = CheckedSource(FileSource(content), digest.entry())
    for _ in range(5):
        offset = data.draw(st.integers(0, len(content)))
        length = data.draw(st.integers(0, min(len(content) - offset, 3 * BLOCK_LENGTH)))
        assert source.read_at(offset, length) == content[offset : offset + length]
    for offset in range(0, len(content), BLOCK_LENGTH):
        source.read_at(offset, 1)
    with pytest.raises(FormatError, match="needs bytes"):
        source.read_at(len(content), 1)


@given(st.lists(st.binary(max_size=3), max_size=20), st.integers(0, 2 * BLOCK_LENGTH))
def test_the_digest_does_not_depend_on_the_pieces(pieces: list[bytes], zeros: int) -> None:
    whole, parted = FileHasher(), FileHasher()
    whole.update(b"".join(pieces) + bytes(zeros))
    for piece in [*pieces, bytes(zeros)]:
        parted.update(piece)
    assert whole.entry() == parted.entry()
