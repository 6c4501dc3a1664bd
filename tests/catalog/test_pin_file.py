"""The client's pin file: what is in it, who may write it, and that it fails loudly."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tablecrypt.errors import ConfigurationError, FormatError, KeyIdChangedError, MetadataRollbackError, TablecryptError, TamperedFileError
from tablecrypt.keys.column_keys import ColumnMask
from tablecrypt_catalog.pins.client import PinFile, Place, refuse_conflict
from tablecrypt_catalog.pins.protected_columns import PinnedColumn
from tablecrypt_catalog.pins.record import Head, Moves, TableVersion
from tests.support.edited_metadata import edit_json
from tests.support.full_disk import no_file_beyond
from tests.support.observed_calls import observed
from tests.support.vectors import VECTORS

PLACE: Place = ("prod", ("db", "t"))
VERSION_1 = TableVersion(
    *("uuid-1", "alias/orders", 16, "s3://b/t/metadata/00001-a.metadata.json", "hash-1", 1),
    kek_hashes=frozenset({"kek-2", "kek-1"}),
    heads={"main": Head(11, 1), "v 1": Head(11, 1)},
    retired_keks=frozenset({"kek-1", "id:1"}),
    folders=("s3://b/t",),
    columns={2: PinnedColumn(2, "pii", ColumnMask("hash"), since=1)},
)


def version(number: int) -> TableVersion:
    return replace(
        VERSION_1,
        metadata_location=f"s3://b/t/metadata/{number:05d}-a.metadata.json",
        metadata_hash=f"hash-{number}",
        last_sequence_number=number,
        heads={"main": Head(10 + number, number)},
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "pins.json"


@pytest.fixture
def pins(path: Path) -> PinFile:
    return PinFile(str(path))


def remember(pins: PinFile, seen: TableVersion, place: Place = PLACE) -> None:
    pins.remember(place, pins.recall_all().get(place), seen)


def test_what_was_remembered_is_recalled_by_another_client(pins: PinFile, path: Path) -> None:
    assert pins.recall_all().get(PLACE) is None
    remember(pins, VERSION_1)
    remember(pins, replace(VERSION_1, table_uuid="uuid-2"), ("prod", ("db", "nested", "a.b")))
    again = PinFile(str(path))
    assert again.recall_all().get(PLACE) == VERSION_1
    assert again.recall_all().get(("prod", ("db", "nested", "a.b"))) == replace(VERSION_1, table_uuid="uuid-2")
    assert again.recall_all().get(("prod", ("db", "nested.a", "b"))) is None
    assert again.recall_all().get(("other", ("db", "t"))) is None


def test_the_file_belongs_to_its_owner_alone(pins: PinFile, path: Path) -> None:
    before = os.umask(0)
    try:
        remember(pins, VERSION_1)
        remember(pins, version(2))
    finally:
        os.umask(before)
    assert {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()} == {0o600}
    assert sorted(each.name for each in path.parent.iterdir()) == ["pins.json", "pins.json.lock"]


def test_the_lock_follows_no_link(pins: PinFile, path: Path, tmp_path: Path) -> None:
    other = tmp_path / "of-another"
    other.write_text("kept")
    path.parent.mkdir(parents=True, exist_ok=True)
    Path(f"{path}.lock").symlink_to(other)
    with pytest.raises(ConfigurationError, match="symbolic link"):
        remember(pins, VERSION_1)
    assert not path.exists() and other.read_text() == "kept"


def test_a_table_that_did_not_change_writes_nothing(pins: PinFile, path: Path) -> None:
    remember(pins, VERSION_1)
    before = path.stat().st_ino
    remember(pins, VERSION_1)
    assert path.stat().st_ino == before


def test_plaintext_tables_leave_no_file(pins: PinFile, path: Path) -> None:
    remember(pins, replace(VERSION_1, table_key_id=None))
    pins.forget(PLACE)
    pins.rename(PLACE, ("prod", ("db", "u")))
    assert not path.parent.exists()


def test_a_refused_answer_does_not_move_the_pin(pins: PinFile) -> None:
    remember(pins, version(5))
    with pytest.raises(MetadataRollbackError):
        remember(pins, version(4))
    assert pins.recall_all().get(PLACE) == version(5)


def test_an_answer_that_another_process_has_overtaken_is_no_rollback(pins: PinFile) -> None:
    remember(pins, version(1))
    before = pins.recall_all().get(PLACE)
    remember(pins, version(3))
    pins.remember(PLACE, before, version(2))
    assert pins.recall_all().get(PLACE) == version(3)


def test_an_answer_that_comes_after_the_pin_was_forgotten_does_not_bring_it_back(pins: PinFile) -> None:
    remember(pins, version(1))
    before = pins.recall_all().get(PLACE)
    pins.forget(PLACE)
    pins.remember(PLACE, before, version(2))
    assert pins.recall_all().get(PLACE) is None


def test_another_pinned_tables_metadata_is_refused(pins: PinFile) -> None:
    before = replace(VERSION_1, columns={})
    other = replace(before, table_uuid="uuid-2", kek_hashes=frozenset({"kek-3"}))
    remember(pins, before)
    remember(pins, other, ("prod", ("db", "other")))
    remember(pins, other, ("staging", ("db", "t")))
    with pytest.raises(TamperedFileError, match=r"metadata of prod\.db\.other"):
        remember(pins, other)
    pins.forget(("prod", ("db", "other")))
    remember(pins, other)
    assert pins.recall_all().get(PLACE) == other


def test_pins_are_forgotten_and_renamed(pins: PinFile) -> None:
    other: Place = ("prod", ("db", "u"))
    remember(pins, VERSION_1)
    pins.rename(PLACE, other)
    assert (pins.recall_all().get(PLACE), pins.recall_all().get(other)) == (None, VERSION_1)
    pins.forget(other)
    assert pins.recall_all().get(other) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"format": 0, "pins": []}',
        b'{"format": 4, "pins": [{}]}',
        b'{"format": 5, "pins": [], "more": 1}',
        b'{"format": 5}',
    ],
)
def test_a_file_that_is_no_pin_file_is_an_error_and_stays_as_it_is(pins: PinFile, path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    uses: tuple[Callable[[], object], ...] = (
        lambda: pins.recall_all().get(PLACE),
        lambda: pins.remember(PLACE, None, VERSION_1),
        lambda: pins.forget(PLACE),
        lambda: pins.rename(PLACE, PLACE),
    )
    for use in uses:
        with pytest.raises(FormatError, match=r"pins\.json.*restore"):
            use()
    assert path.read_bytes() == content


@pytest.mark.parametrize("number", [6, 10])
def test_a_file_of_a_newer_release_is_refused_with_what_to_do_and_stays_as_it_is(pins: PinFile, path: Path, number: int) -> None:
    remember(pins, VERSION_1)
    newer = path.read_text().replace('"format": 5', f'"format": {number}').replace('"protected-columns"', '"columns-of-then"')
    path.write_text(newer)
    with pytest.raises(FormatError, match=r"pins\.json: a newer release of tablecrypt has written this pin file.*upgrade") as refused:
        remember(pins, VERSION_1)
    assert "\n" not in str(refused.value)
    assert path.read_text() == newer


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_file_from_before_the_first_release_is_refused_and_stays_as_it_is(pins: PinFile, path: Path, number: int) -> None:
    remember(pins, VERSION_1)
    older = path.read_text().replace('"format": 5', f'"format": {number}')
    path.write_text(older)
    with pytest.raises(FormatError, match=r"pins\.json: this pin file is of a format from before the first release.*remove it"):
        remember(pins, VERSION_1)
    assert path.read_text() == older


@pytest.mark.parametrize("name", ["format-4", "format-4-without-names"])
def test_a_stored_file_of_format_4_is_read_and_learns_until_when_former_keys_count(pins: PinFile, path: Path, name: str) -> None:
    """Files that the package wrote before format 5: the later of them with names and former keys of columns."""
    path.parent.mkdir()
    path.write_bytes((VECTORS / "pins" / f"{name}.json").read_bytes())
    place: Place = ("prod", ("db", "people"))
    known = pins.recall_all()[place]
    has_names = name == "format-4"
    ssn, salary = known.columns[2], known.columns[3]
    assert ssn == PinnedColumn(
        2, "pii", ColumnMask("truncate", 3), names=frozenset({"ssn"}) if has_names else None, former_key_id="fin" if has_names else None
    )
    assert salary == PinnedColumn(3, "fin", names=frozenset({"salary"}) if has_names else None)

    remember(pins, VERSION_1)
    assert pins.recall_all()[place] == known
    seen = replace(known, columns={2: replace(ssn, names=frozenset({"ssn"}), former_key_id="fin", former_until=1), 3: salary})
    remember(pins, seen, place)
    assert json.loads(path.read_text())["format"] == 5
    assert pins.recall_all()[place].columns[2].former_until == 1
    with pytest.raises(KeyIdChangedError, match="'fin' in files up to sequence number 2 now, which was 1 before"):
        remember(pins, replace(seen, columns={**seen.columns, 2: replace(seen.columns[2], former_until=2)}), place)


def test_a_device_in_its_place_is_not_read_without_end(pins: PinFile, path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to("/dev/zero")
    with pytest.raises(ConfigurationError, match=r"pins\.json cannot be read: it is longer than 1073741824 bytes"):
        pins.recall_all()


@pytest.mark.parametrize(
    "field", ["table-uuid", "encryption.key-id", "last-sequence-number", "metadata-hash", "kek-hashes", "heads", "retired-keks"]
)
def test_an_entry_that_lacks_a_field_is_an_error(pins: PinFile, path: Path, field: str) -> None:
    remember(pins, VERSION_1)
    edit_json(path, lambda content: content["pins"][0].pop(field))
    with pytest.raises(FormatError, match=field):
        pins.recall_all().get(PLACE)


@pytest.mark.parametrize("heads", [{"main": 1}, {"main": [1]}, {"main": [1, "2"]}, {"main": [1, 2, 3]}, ["main"], None])
def test_heads_that_are_none_are_an_error(pins: PinFile, path: Path, heads: object) -> None:
    remember(pins, VERSION_1)
    edit_json(path, lambda content: content["pins"][0].update(heads=heads))
    with pytest.raises(FormatError, match="heads"):
        pins.recall_all().get(PLACE)


def test_a_rollback_of_this_client_that_another_process_sees_first_is_none(pins: PinFile) -> None:
    remember(pins, version(2))
    before = pins.recall_all().get(PLACE)
    back = replace(version(3), heads={"main": Head(11, 1)})
    pins.remember(PLACE, before, back, moved=Moves(frozenset({"main"})))
    pins.remember(PLACE, before, back)
    assert pins.recall_all().get(PLACE) == back


def test_what_this_client_moves_back_falls_under_every_name_of_the_table(pins: PinFile) -> None:
    second, stranger = ("second", ("db", "t")), ("prod", ("db", "stranger"))
    for place, seen in ((PLACE, version(2)), (second, version(2)), (stranger, replace(version(2), table_uuid="uuid-2"))):
        remember(pins, seen, place)
    back = replace(version(3), heads={"main": Head(11, 1)})
    pins.remember(PLACE, version(2), back, moved=Moves(frozenset({"main"})))
    assert pins.recall_all().get(second) == replace(version(2), heads=back.heads)
    assert pins.recall_all().get(stranger) == replace(version(2), table_uuid="uuid-2")
    pins.remember(PLACE, back, version(4), moved=Moves(frozenset({"main"})))
    assert pins.recall_all().get(second) == replace(version(2), heads=back.heads)
    remember(pins, back, second)


def test_the_name_seen_first_is_not_refused_for_the_one_seen_later(pins: PinFile, caplog: pytest.LogCaptureFixture) -> None:
    second = ("a second", ("db", "t"))
    remember(pins, version(1))
    remember(pins, version(5), second)
    refuse_conflict(pins.recall_all(), PLACE, version(2))
    assert "first seen later" in caplog.text
    with pytest.raises(MetadataRollbackError, match="two catalogs"):
        refuse_conflict({PLACE: version(6), second: version(5)}, second, version(5))
    with pytest.raises(MetadataRollbackError, match="two catalogs"):
        refuse_conflict(pins.recall_all(), ("third", ("db", "t")), version(4))
    pins.accept_rollback(second, version(4))
    assert list(pins.recall_all()) == [second, PLACE]


def test_a_lock_that_is_never_released_is_an_error_after_a_bounded_wait(path: Path) -> None:
    pins = PinFile(str(path), lock_timeout_s=0.05)
    path.parent.mkdir()
    with Path(f"{path}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(TablecryptError, match=r"pins\.json\.lock was held"):
            remember(pins, VERSION_1)
    remember(pins, VERSION_1)


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"encryption\.pins"):
        PinFile("")


def test_a_linked_file_is_replaced_where_it_is(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(path)
    remember(PinFile(str(link)), VERSION_1)
    assert link.is_symlink()
    assert PinFile(str(path)).recall_all().get(PLACE) == VERSION_1


TABLES, VERSIONS = 4, 6


def write_all(path: str, start: int) -> None:
    """Move the pins of several tables forward, beginning with another table in each process and thread."""
    pins = PinFile(path)
    for number in range(1, VERSIONS + 1):
        for table in range(TABLES):
            place = ("prod", ("db", f"t{(start + table) % TABLES}"))
            before = pins.recall_all().get(place)
            if before is None or before.last_sequence_number < number:
                pins.remember(place, before, version(number))


def test_no_pin_is_lost_between_processes_and_threads(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write_all, args=(str(path), start)) for start in range(2)]
    for process in processes:
        process.start()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda start: write_all(str(path), start), range(4)))
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    pins = PinFile(str(path))
    assert [pins.recall_all().get(("prod", ("db", f"t{table}"))) for table in range(TABLES)] == [version(VERSIONS)] * TABLES


OTHER: Place = ("prod", ("db", "u"))
THIRD: Place = ("prod", ("db", "v"))


def table(number: int) -> TableVersion:
    """A table of its own, with a KEK of its own."""
    return replace(VERSION_1, table_uuid=f"uuid-{number}", kek_hashes=frozenset({f"kek-of-{number}"}), heads={}, retired_keks=frozenset())


@pytest.mark.parametrize("order", [(PLACE, OTHER, THIRD), (OTHER, THIRD, PLACE)])
def test_a_renamed_table_keeps_its_pin_and_the_others_keep_theirs(pins: PinFile, order: tuple[Place, ...]) -> None:
    tables = {PLACE: table(1), OTHER: table(2), THIRD: table(3)}
    for place in order:
        remember(pins, tables[place], place)
    pins.rename(PLACE, ("prod", ("db", "new")))
    assert pins.recall_all() == {("prod", ("db", "new")): table(1), OTHER: table(2), THIRD: table(3)}
    pins.rename(("prod", ("db", "new")), OTHER)
    assert pins.recall_all() == {OTHER: table(1), THIRD: table(3)}
    pins.rename(OTHER, OTHER)
    pins.rename(("prod", ("db", "gone")), PLACE)
    assert pins.recall_all() == {OTHER: table(1), THIRD: table(3)}


def test_an_accepted_rollback_is_first_of_the_pins_and_keeps_its_keks(pins: PinFile) -> None:
    for place, number in ((OTHER, 2), (PLACE, 1), (THIRD, 3)):
        remember(pins, table(number), place)
    back = replace(table(1), metadata_location="s3://b/00000-a.metadata.json", last_sequence_number=0, kek_hashes=frozenset())
    with pytest.raises(MetadataRollbackError, match=r"prod\.db\.t: last-sequence-number is 0"):
        remember(pins, back)
    pins.accept_rollback(PLACE, back)
    assert pins.recall_all() == {PLACE: replace(back, kek_hashes=table(1).kek_hashes), OTHER: table(2), THIRD: table(3)}
    assert list(pins.recall_all()) == [PLACE, OTHER, THIRD]


def test_a_rollback_to_another_pinned_table_is_not_accepted(pins: PinFile) -> None:
    remember(pins, table(1))
    remember(pins, table(2), OTHER)
    before = pins.recall_all()
    with pytest.raises(TamperedFileError, match=r"for prod\.db\.t, but it is the metadata of prod\.db\.u"):
        pins.accept_rollback(PLACE, table(2))
    assert pins.recall_all() == before


def test_accepting_without_a_pin_trusts_an_encrypted_table_alone(pins: PinFile) -> None:
    pins.accept_rollback(PLACE, replace(table(1), table_key_id=None))
    assert pins.recall_all() == {}
    pins.accept_rollback(PLACE, table(1))
    assert pins.recall_all() == {PLACE: table(1)}
    pins.forget(OTHER)
    assert pins.recall_all() == {PLACE: table(1)}


def test_an_answer_that_moves_nothing_waits_for_no_lock(path: Path) -> None:
    impatient = PinFile(str(path), lock_timeout_s=0)
    remember(impatient, VERSION_1)
    with (path.parent / "pins.json.lock").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        remember(impatient, VERSION_1)
        with pytest.raises(TablecryptError, match=r"pins\.json\.lock was held by another process for 0 seconds"):
            remember(impatient, version(2))
    assert impatient.recall_all().get(PLACE) == VERSION_1


def test_what_this_client_moves_forward_stays_where_it_was_under_other_names(pins: PinFile) -> None:
    before = replace(version(5), heads={"main": Head(15, 5), "side": Head(13, 3)})
    remember(pins, before)
    remember(pins, before, ("staging", ("db", "t")))
    after = replace(version(6), heads={"main": Head(12, 2), "side": Head(16, 6)})
    pins.remember(PLACE, pins.recall_all().get(PLACE), after, Moves(frozenset({"main", "side"})))
    followed = pins.recall_all().get(("staging", ("db", "t")))
    assert followed is not None
    assert followed.heads == {"main": Head(12, 2), "side": Head(13, 3)}


def test_a_second_name_that_is_ahead_is_told_with_both_numbers(pins: PinFile, caplog: pytest.LogCaptureFixture) -> None:
    ahead, names = version(7), ("prod.db.t", "prod.db.u")
    refuse_conflict({PLACE: version(5), OTHER: ahead, THIRD: table(9)}, PLACE, version(5))
    assert caplog.messages == [
        f"{names[0]} is at sequence number 5, but {names[1]}, where the same table was first seen later, was at 7: "
        "if two catalogs hold the table, their commits do not know of each other"
    ]
    with pytest.raises(MetadataRollbackError, match=rf"^{names[1]} is at sequence number 5, but .* at 7 as {names[0]}"):
        refuse_conflict({PLACE: ahead}, OTHER, version(5))


def test_a_pin_is_on_the_disk_before_its_file_has_its_name(pins: PinFile, path: Path) -> None:
    names_then: list[bool] = []
    with observed(os.fsync, lambda _: names_then.append(path.exists())):
        remember(pins, VERSION_1)

    assert names_then[0] is False


def test_a_file_that_cannot_be_written_whole_stays_as_it_was_and_leaves_no_other(pins: PinFile, path: Path) -> None:
    """As on a full disk: no file may have more than 100 bytes."""
    remember(pins, VERSION_1)
    stored = path.read_bytes()
    with no_file_beyond(100), pytest.raises(OSError, match="File too large"):
        remember(pins, version(2))
    assert path.read_bytes() == stored
    assert sorted(each.name for each in path.parent.iterdir()) == ["pins.json", "pins.json.lock"]


def test_names_of_all_alphabets_are_kept_as_they_are(pins: PinFile, path: Path) -> None:
    place = ("prod", ("größe", "表"))
    remember(pins, VERSION_1, place)
    assert pins.recall_all() == {place: VERSION_1}
    assert "größe" in path.read_bytes().decode()
    assert path.read_text("utf-8").startswith('{\n "format": 5')


def test_an_edit_is_refused_by_the_tables_name(pins: PinFile) -> None:
    remember(pins, VERSION_1)
    with pytest.raises(TamperedFileError, match=r"prod\.db\.t: the table metadata was edited") as refused:
        remember(pins, replace(VERSION_1, metadata_hash="another"))
    assert refused.value.location == VERSION_1.metadata_location
