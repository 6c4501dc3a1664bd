"""A check of a catalog's answer against the client's pin file: what it was before counts, what is proven of the answer is pinned."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException

from tablecrypt.errors import KeyIdChangedError, MetadataRollbackError, TamperedFileError
from tablecrypt_catalog.pins.client import ClientPins, PinFile
from tablecrypt_catalog.pins.record import Head, Moves, TableVersion, table_version
from tests.catalog.test_pin_file import PLACE, version
from tests.support.bare_metadata import fields, kek, list_key, parsed, snapshot

VERSION_1 = version(1)
METADATA = parsed(fields([snapshot(1, "l1")], [kek("k1", 100, b"first"), list_key("l1", "k1")]))
METADATA_FILE = "s3://bucket/db/t/metadata/00001-a.metadata.json"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pins.json"


@pytest.fixture
def pins(path: Path) -> ClientPins:
    return ClientPins("prod", {"encryption.pins": str(path)})


def pinned(path: Path) -> TableVersion | None:
    return PinFile(str(path)).recall_all().get(PLACE)


def proves_nothing(before: TableVersion | None, seen: TableVersion) -> None:
    """The proof of an answer of which nothing may be pinned."""


def test_without_a_pin_file_nothing_is_held_against_anything() -> None:
    pins = ClientPins("prod", {})
    check = pins.begin_check("db.t")

    assert pins.places == ()
    assert check.verify(VERSION_1) is check.accept_rollback(VERSION_1) is None
    check.refuse_plaintext()
    check.record_commit(METADATA, METADATA_FILE)
    pins.forget("db.t")
    pins.rename("db.t", "db.u")


def test_the_answer_becomes_the_pin_under_the_catalogs_name(pins: ClientPins, path: Path) -> None:
    assert pins.places == (str(path),)
    assert pins.begin_check("db.t").verify(VERSION_1) == VERSION_1
    assert pinned(path) == VERSION_1
    assert pins.begin_check(("db", "t")).verify(version(2)) == version(2)
    assert pinned(path) == version(2)


def test_an_answer_that_moves_nothing_leaves_the_file_alone(pins: ClientPins, path: Path) -> None:
    pins.begin_check("db.t").verify(VERSION_1)
    before = path.stat().st_ino
    asked: list[TableVersion] = []

    def proof(_: TableVersion | None, seen: TableVersion) -> TableVersion:
        asked.append(seen)
        return seen

    assert pins.begin_check("db.t").verify(VERSION_1, proof) == VERSION_1
    assert (path.stat().st_ino, asked) == (before, [])
    assert pins.begin_check("db.t").verify(VERSION_1, proof, Moves(refs=frozenset({"main"}))) == VERSION_1
    assert asked == [VERSION_1]


def test_what_proves_nothing_is_held_against_the_pin_all_the_same(pins: ClientPins, path: Path) -> None:
    pins.begin_check("db.first").verify(version(2))
    pins.begin_check("db.t").verify(replace(version(3), table_uuid="uuid-2"))

    with pytest.raises(TamperedFileError, match=r"it is the metadata of prod\.db\.first"):
        pins.begin_check("db.t").verify(version(2), proves_nothing)
    with pytest.raises(MetadataRollbackError):
        pins.begin_check("db.first").verify(VERSION_1, proves_nothing)
    with pytest.raises(CommitFailedException):
        pins.begin_check("db.first").verify_base(VERSION_1, proves_nothing)
    assert pins.begin_check("db.t").verify_base(replace(version(4), table_uuid="uuid-2"), proves_nothing) is not None
    assert pinned(path) == replace(version(3), table_uuid="uuid-2")


def test_a_pin_that_was_forgotten_meanwhile_stays_forgotten(pins: ClientPins, path: Path) -> None:
    pins.begin_check("db.t").verify(VERSION_1)
    of_an_answer, of_a_commit = pins.begin_check("db.t"), pins.begin_check("db.t")
    pins.forget("db.t")

    assert of_an_answer.verify(version(2)) is None
    of_a_commit.record_commit(METADATA, METADATA_FILE, "hash")
    assert pinned(path) is None


def test_an_older_answer_is_refused_by_the_tables_whole_name_and_as_the_base_of_a_commit_too(pins: ClientPins, path: Path) -> None:
    pins.begin_check("db.t").verify(version(2))

    with pytest.raises(MetadataRollbackError, match=r"^prod\.db\.t"):
        pins.begin_check("db.t").verify(VERSION_1)
    with pytest.raises(CommitFailedException, match=r"the commit is based on old metadata: prod\.db\.t"):
        pins.begin_check("db.t").verify_base(VERSION_1)
    assert pins.begin_check("db.t").verify_base(version(3)) == version(3)
    assert pinned(path) == version(3)


def test_what_the_pin_was_when_the_check_began_is_what_counts(pins: ClientPins, path: Path) -> None:
    pins.begin_check("db.t").verify(VERSION_1)
    begun = pins.begin_check("db.t")
    pins.begin_check("db.t").verify(version(3))

    assert begun.verify(version(2)) == version(3)
    assert pinned(path) == version(3)


def test_a_proof_gets_the_pin_and_the_answer_and_says_what_is_pinned(pins: ClientPins, path: Path) -> None:
    pins.begin_check("db.t").verify(VERSION_1)
    given: list[tuple[TableVersion | None, TableVersion]] = []

    def nothing(before: TableVersion | None, seen: TableVersion) -> TableVersion | None:
        given.append((before, seen))
        return None

    assert pins.begin_check("db.t").verify(version(3), nothing) == version(3)
    assert given == [(VERSION_1, version(3))]
    assert pinned(path) == VERSION_1
    assert pins.begin_check("db.t").verify(version(3), lambda before, seen: version(2)) == version(2)
    assert pinned(path) == version(2)


def test_what_a_commit_of_this_client_moves_back_is_no_rollback(pins: ClientPins, path: Path) -> None:
    pins.begin_check("db.t").verify(version(2))
    back = replace(version(3), heads={"main": Head(11, 1)})

    with pytest.raises(MetadataRollbackError):
        pins.begin_check("db.t").verify(back)
    assert pins.begin_check("db.t").verify(back, moved=Moves(refs=frozenset({"main"}))) == back
    assert pinned(path) == back


def test_a_table_that_was_seen_newer_under_another_name_is_refused(pins: ClientPins) -> None:
    pins.begin_check("db.first").verify(version(2))

    with pytest.raises(MetadataRollbackError, match=r"prod\.db\.first"):
        pins.begin_check("db.t").verify(VERSION_1)
    assert pins.begin_check("db.t").verify(version(2)) == version(2)


def test_a_name_that_has_a_pin_is_no_plaintext_table_until_it_is_forgotten_or_renamed(pins: ClientPins) -> None:
    pins.begin_check("db.t").verify(VERSION_1)
    with pytest.raises(KeyIdChangedError, match="a plaintext table"):
        pins.begin_check("db.t").refuse_plaintext()
    with pytest.raises(KeyIdChangedError, match="a view"):
        pins.begin_check("db.t").refuse_plaintext("a view")

    pins.rename("db.t", "db.u")
    pins.begin_check("db.t").refuse_plaintext()
    pins.forget("db.u")
    pins.begin_check("db.u").refuse_plaintext()


def test_a_rollback_that_is_accepted_is_the_pin(pins: ClientPins, path: Path) -> None:
    pins.begin_check("db.t").verify(version(2))

    assert pins.begin_check("db.t").accept_rollback(VERSION_1) == VERSION_1
    assert pinned(path) == VERSION_1


def test_a_commit_moves_the_pin_to_what_it_wrote(pins: ClientPins, path: Path) -> None:
    pins.begin_check("db.t").record_commit(METADATA, METADATA_FILE, "hash")
    assert pinned(path) == table_version(METADATA, METADATA_FILE, "hash")

    stamp = path.stat().st_ino
    pins.begin_check("db.t").record_commit(METADATA, METADATA_FILE, "hash")
    pins.begin_check("db.t").record_commit(METADATA, METADATA_FILE)
    assert path.stat().st_ino == stamp
    with pytest.raises(TamperedFileError, match="The commit that was answered so stands"):
        pins.begin_check("db.t").record_commit(METADATA, METADATA_FILE, "another hash")
    assert path.stat().st_ino == stamp


def test_a_commit_that_moves_a_branch_back_moves_the_pin_with_it(pins: ClientPins, path: Path) -> None:
    committed = table_version(METADATA, METADATA_FILE, "hash")
    ahead = replace(committed, metadata_location=f"{METADATA_FILE}.before", metadata_hash="other", heads={"main": Head(12, 2)})
    pins.begin_check("db.t").verify(ahead)

    with pytest.raises(MetadataRollbackError, match="The commit that was answered so stands"):
        pins.begin_check("db.t").record_commit(METADATA, METADATA_FILE, "hash")
    assert pinned(path) == ahead
    pins.begin_check("db.t").record_commit(METADATA, METADATA_FILE, "hash", Moves(refs=frozenset({"main"})))
    assert pinned(path) == committed


def test_a_commit_whose_hash_is_not_known_is_pinned_with_that_of_its_json(pins: ClientPins, path: Path) -> None:
    pins.begin_check("db.t").record_commit(METADATA, METADATA_FILE)

    found = pinned(path)
    assert found is not None
    assert found.metadata_hash == hashlib.sha256(METADATA.model_dump_json().encode()).hexdigest()


def test_a_commit_that_no_pin_can_follow_stands_and_is_logged(pins: ClientPins, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    check = pins.begin_check("db.t")
    path.mkdir()

    with caplog.at_level(logging.WARNING):
        check.record_commit(METADATA, METADATA_FILE)
    [record] = caplog.records
    assert record.getMessage().startswith(f"{METADATA_FILE} is committed, but its pin could not be moved: ")
    assert str(path) in record.getMessage()
