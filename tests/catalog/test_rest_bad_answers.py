"""A REST catalog server that loses, changes or repeats what it was told: each time a named error, and no row or file is lost."""

from __future__ import annotations

import json
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table

from tablecrypt.errors import (
    FormatError,
    KeyIdChangedError,
    KeyNotFoundError,
    MetadataRollbackError,
    PlaintextRefusedError,
    TablecryptError,
    TamperedFileError,
)
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt_catalog import EncryptedRestCatalog
from tests.support.aws import AwsServer
from tests.support.rest_proxy import (
    Answer,
    Behaviour,
    Forward,
    Request,
    RestProxy,
    edit_answer,
    edit_commits,
    edit_metadata,
    failing_commits,
    honest,
    losing_commit_answers,
)
from tests.support.rest_server import RestServer, encrypted_rest_catalog, new_namespace
from tests.support.tables import MASTER_KEY, ROWS, folder_of

pytestmark = pytest.mark.java

PROPERTIES = {"encryption.key-id": MASTER_KEY, "commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "2"}


@dataclass
class Case:
    """A table of two snapshots, known through a proxy that is honest so far, and the server's own view of it."""

    proxy: RestProxy
    catalog: EncryptedRestCatalog
    table: Table
    honest_catalog: EncryptedRestCatalog

    @property
    def name(self) -> tuple[str, ...]:
        return self.table.name()

    def truth(self) -> Table:
        return self.honest_catalog.load_table(self.name)

    def files(self) -> set[Path]:
        return set(folder_of(self.table).rglob("*"))

    def rows(self) -> Counter[int]:
        return Counter(self.truth().scan().to_arrow().column("id").to_pylist())


@pytest.fixture
def case(rest_server: RestServer, aws: AwsServer) -> Iterator[Case]:
    namespace = new_namespace(rest_server)
    with RestProxy(rest_server.uri) as proxy:
        catalog = encrypted_rest_catalog(proxy.uri, aws)
        table = catalog.create_table(f"{namespace}.t", ROWS.schema, properties=PROPERTIES)
        table.append(ROWS)
        table.append(ROWS)
        yield Case(proxy, catalog, table, encrypted_rest_catalog(rest_server.uri, aws))


def times(number: int) -> Counter[int]:
    return Counter({1: number, 2: number, 3: number})


def test_lost_keys_in_an_answer_are_an_error_and_the_commit_stands(case: Case) -> None:
    case.proxy.behave(edit_metadata(lambda metadata: metadata.pop("encryption-keys"), when=to_a_commit))
    with pytest.raises(KeyNotFoundError):
        case.table.append(ROWS)
    assert case.rows() == times(3)
    case.proxy.behave(edit_metadata(lambda metadata: metadata.pop("encryption-keys")))
    with pytest.raises(KeyNotFoundError):
        case.catalog.load_table(case.name).scan().to_arrow()
    case.proxy.behave(honest)
    case.table.refresh().append(ROWS)
    assert case.rows() == times(4)


def to_a_commit(request: Request) -> bool:
    return request.is_commit


def lose_keys(metadata: dict[str, Any], keep_keks: bool) -> None:
    metadata["encryption-keys"] = [key for key in metadata["encryption-keys"] if ("properties" in key) == keep_keks]


def change_a_key(metadata: dict[str, Any]) -> None:
    first, second = [key for key in metadata["encryption-keys"] if "properties" not in key][:2]
    first["encrypted-key-metadata"] = second["encrypted-key-metadata"]


def exchange_key_ids(metadata: dict[str, Any]) -> None:
    metadata["snapshots"][-1]["key-id"] = metadata["snapshots"][0]["key-id"]


def make_plain(metadata: dict[str, Any]) -> None:
    del metadata["properties"]["encryption.key-id"], metadata["encryption-keys"]
    for snapshot in metadata["snapshots"]:
        del snapshot["key-id"]


def scan(case: Case) -> None:
    case.catalog.load_table(case.name).scan().to_arrow()


def load(case: Case) -> None:
    case.catalog.load_table(case.name)


def refresh(case: Case) -> None:
    case.table.refresh()


OTHER_KEY_ID = {"encryption.key-id": "alias/other"}
WITHOUT_KEY_ID = "holds encryption keys but no encryption.key-id"
EDITS: dict[
    str, tuple[Callable[[dict[str, Any]], object], type[Exception], str, tuple[tuple[Callable[[Case], None], type[Exception], str], ...]]
] = {
    "no KEK": (lambda metadata: lose_keys(metadata, False), KeyNotFoundError, "with snapshot .* is not in the table's encryption-keys", ()),
    "no manifest-list key": (
        lambda metadata: lose_keys(metadata, True),
        *(KeyNotFoundError, "without encryption key .*, which this commit added", ()),
    ),
    "a changed key": (change_a_key, TamperedFileError, "another value of encryption key", ()),
    "snapshots without their key id": (
        lambda metadata: [snapshot.pop("key-id") for snapshot in metadata["snapshots"]],
        *(TamperedFileError, "key-id None", ((scan, PlaintextRefusedError, "has no key-id"),)),
    ),
    "a snapshot with another's key id": (
        exchange_key_ids,
        *(TamperedFileError, "with key-id .* for snapshot", ((scan, TablecryptError, "according to its key metadata"),)),
    ),
    "a table without its key id": (
        lambda metadata: metadata["properties"].pop("encryption.key-id"),
        *(KeyIdChangedError, WITHOUT_KEY_ID, ((load, KeyIdChangedError, WITHOUT_KEY_ID), (refresh, KeyIdChangedError, WITHOUT_KEY_ID))),
    ),
    "another key id": (
        lambda metadata: metadata["properties"].update(OTHER_KEY_ID),
        *(KeyIdChangedError, "alias/other", ((refresh, KeyIdChangedError, "alias/other"),)),
    ),
    "a plain table": (make_plain, KeyIdChangedError, "encryption.key-id None", ((refresh, KeyIdChangedError, "cannot be removed"),)),
    "another location": (lambda metadata: metadata.update(location="file:///elsewhere"), TamperedFileError, "elsewhere", ()),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_answer_that_was_edited_is_refused_and_the_commit_stands(case: Case, edit: str) -> None:
    change, error, said, reads = EDITS[edit]
    case.proxy.behave(edit_metadata(change, when=to_a_commit))
    with pytest.raises(error, match=said):
        case.table.append(ROWS)
    assert case.rows() == times(3)
    case.proxy.behave(edit_metadata(change))
    for read, refused, why in reads:
        with pytest.raises(refused, match=why):
            read(case)


@pytest.mark.parametrize("edit", sorted(EDITS.keys() - {"a changed key", "a snapshot with another's key id"}))
def test_a_table_that_was_edited_before_a_commit_keeps_the_commit_from_being_sent(case: Case, edit: str) -> None:
    change, *_ = EDITS[edit]
    case.proxy.behave(edit_metadata(change, when=lambda request: request.is_load))
    with pytest.raises((TablecryptError, CommitFailedException)):
        case.table.append(ROWS)
    assert case.rows() == times(2)


def test_a_server_that_does_not_take_key_updates_is_found_out_by_the_first_commit(case: Case) -> None:
    def lose(commit: dict[str, Any]) -> None:
        commit["updates"] = [update for update in commit["updates"] if update["action"] != "add-encryption-key"]

    case.proxy.behave(edit_commits(lose))
    with pytest.raises(KeyNotFoundError, match="added"):
        case.table.append(ROWS)


def test_keys_in_another_order_are_accepted(case: Case) -> None:
    case.proxy.behave(edit_metadata(lambda metadata: metadata["encryption-keys"].reverse()))
    case.table.append(ROWS)
    case.catalog.load_table(case.name).delete("id = 1")
    assert Counter(case.catalog.load_table(case.name).scan().to_arrow().column("id").to_pylist()) == Counter({2: 3, 3: 3})
    assert case.rows() == Counter({2: 3, 3: 3})


def test_a_new_table_with_another_key_id_or_with_snapshots_is_refused(case: Case) -> None:
    namespace = case.name[0]

    def creating(edit: Callable[[dict[str, Any]], object]) -> Behaviour:
        def behaviour(request: Request, forward: Forward) -> Answer | None:
            answer = forward(request)
            if request.method != "POST" or not request.path.endswith("/tables"):
                return answer
            content = answer.content
            edit(content)
            return Answer(answer.status, json.dumps(content).encode())

        return behaviour

    case.proxy.behave(creating(lambda content: content["metadata"]["properties"].update({"encryption.key-id": "alias/other"})))
    with pytest.raises(KeyIdChangedError, match="alias/other"):
        case.catalog.create_table(f"{namespace}.u", ROWS.schema, properties=PROPERTIES)
    with pytest.raises(KeyIdChangedError, match="alias/other"):
        case.catalog.create_table_transaction(f"{namespace}.v", ROWS.schema, properties=PROPERTIES)
    case.proxy.behave(creating(lambda content: content["metadata"]["properties"].pop("encryption.key-id")))
    with pytest.raises(KeyIdChangedError, match="None"):
        case.catalog.create_table(f"{namespace}.w", ROWS.schema, properties=PROPERTIES)
    answer: list[dict[str, Any]] = []
    case.proxy.behave(edit_answer(answer.append))
    case.catalog.load_table(case.name)
    case.proxy.behave(creating(lambda content: content.update(answer[0])))
    with pytest.raises(TamperedFileError, match="snapshots"):
        case.catalog.create_table(f"{namespace}.x", ROWS.schema, properties=PROPERTIES)


def test_another_tables_metadata_is_refused(case: Case) -> None:
    other = case.catalog.create_table((case.name[0], "other"), ROWS.schema, properties=PROPERTIES)
    other.append(ROWS)
    answers: list[dict[str, Any]] = []
    case.proxy.behave(edit_answer(answers.append))
    case.catalog.load_table(other.name())
    case.proxy.behave(edit_answer(lambda content: content.update(answers[0]), when=to_a_commit))
    with pytest.raises(TamperedFileError, match="with table"):
        case.table.append(ROWS)
    case.proxy.behave(edit_answer(lambda content: content.update(answers[0])))
    with pytest.raises(TamperedFileError, match="with table"):
        case.table.append(ROWS)
    with pytest.raises(ValueError, match="UUID does not match"):
        case.table.refresh()
    assert case.rows() == times(3)
    assert other.scan().count() == ROWS.num_rows


def test_a_commit_answered_with_older_metadata_is_an_error_and_the_commit_stands(case: Case) -> None:
    old: list[dict[str, Any]] = []
    case.proxy.behave(edit_answer(old.append))
    case.catalog.load_table(case.name)
    case.proxy.behave(edit_answer(lambda content: content.update(old[0])))
    with pytest.raises(MetadataRollbackError):
        case.table.append(ROWS)
    assert case.rows() == times(3)


def test_commits_on_older_metadata_conflict_and_lose_nothing(case: Case) -> None:
    old: list[dict[str, Any]] = []
    case.proxy.behave(edit_answer(old.append))
    stale = case.catalog.load_table(case.name)
    case.proxy.behave(honest)
    case.table.append(ROWS)
    case.proxy.behave(edit_answer(lambda content: content.update(old[0]), when=lambda request: request.is_load))
    with pytest.raises(CommitFailedException):
        stale.append(ROWS)
    assert case.rows() == times(3)
    case.proxy.behave(honest)
    stale.refresh().append(ROWS)
    assert case.rows() == times(4)


def test_pins_of_this_client_see_older_metadata(case: Case, aws: AwsServer, tmp_path: Path) -> None:
    pinned = encrypted_rest_catalog(case.proxy.uri, aws, {"encryption.pins": str(tmp_path / "pins.json")})
    old: list[dict[str, Any]] = []
    case.proxy.behave(edit_answer(old.append))
    table = pinned.load_table(case.name)
    case.proxy.behave(honest)
    table.append(ROWS)
    table.refresh()
    case.proxy.behave(edit_metadata(lambda metadata: metadata["encryption-keys"].reverse()))
    assert pinned.load_table(case.name).scan().count() == 3 * ROWS.num_rows
    case.proxy.behave(edit_metadata(lambda metadata: metadata["properties"].update(owner="someone")))
    with pytest.raises(TamperedFileError, match="edited"):
        pinned.load_table(case.name)
    case.proxy.behave(edit_answer(lambda content: content.update(old[0])))
    with pytest.raises(MetadataRollbackError):
        pinned.load_table(case.name)
    with pytest.raises(MetadataRollbackError):
        table.refresh()
    case.proxy.behave(honest)
    renamed = pinned.rename_table(case.name, (case.name[0], "renamed"))
    assert renamed.scan().count() == 3 * ROWS.num_rows
    pinned.drop_table(renamed.name())
    assert json.loads((tmp_path / "pins.json").read_text())["pins"] == []


def assert_state_unknown_and_nothing_lost(case: Case, behaviour: Behaviour, error: type[Exception], landed: bool) -> None:
    before = case.files()
    case.proxy.behave(behaviour)
    with pytest.raises(error):
        case.table.append(ROWS)
    assert len({path.suffix for path in case.files() - before} & {".parquet", ".avro"}) == 2
    case.proxy.behave(honest)
    assert len(case.truth().snapshots()) == 2 + landed
    assert case.rows() == times(2 + landed)
    case.table.refresh()
    assert Counter(case.table.scan().to_arrow().column("id").to_pylist()) == times(2 + landed)
    case.table.append(ROWS)
    assert case.rows() == times(3 + landed)


def test_a_lost_answer_leaves_the_state_unknown_deletes_nothing_and_a_refresh_shows_the_one_commit(case: Case) -> None:
    assert_state_unknown_and_nothing_lost(case, losing_commit_answers, CommitStateUnknownException, landed=True)


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_failing_server_leaves_the_state_unknown_and_deletes_nothing(case: Case, status: int, landed: bool) -> None:
    failing = failing_commits(status, times=1, after_forwarding=landed)
    assert_state_unknown_and_nothing_lost(case, failing, CommitStateUnknownException, landed)


def test_an_answer_that_is_no_metadata_leaves_the_files(case: Case) -> None:
    is_for_loads: list[bool] = []

    def nonsense(request: Request, forward: Forward) -> Answer | None:
        answer = forward(request)
        if request.is_load and not is_for_loads:
            return answer
        return Answer(200, b'{"metadata": {"format-version": 3}, "config": ["a-secret"]}')

    case.proxy.behave(nonsense)
    with pytest.raises(FormatError, match=r"\.t: the catalog's answer"):
        case.table.append(ROWS)
    is_for_loads.append(True)
    with pytest.raises(FormatError, match=r"metadata\.3\.location: Field required") as error:
        case.catalog.load_table(case.name)
    assert "a-secret" not in "".join(traceback.format_exception(error.value))
    assert case.rows() == times(3)


def test_a_conflict_and_then_success_is_one_commit_without_stray_keys(case: Case) -> None:
    case.proxy.behave(failing_commits(409, times=2))
    case.table.append(ROWS)
    assert case.rows() == times(3)
    metadata = case.truth().metadata
    assert isinstance(metadata, EncryptedTableMetadata)
    needed = metadata.key_ring.needed_by(str(snapshot.key_id) for snapshot in metadata.snapshots)
    assert {key.key_id for key in metadata.encryption_keys} == needed
    assert case.table.metadata == metadata


def test_a_commit_that_landed_but_was_reported_as_a_conflict_is_not_done_twice(case: Case) -> None:
    case.proxy.behave(failing_commits(409, times=1, after_forwarding=True))
    case.table.append(ROWS)
    assert case.rows() == times(3)
    assert len(case.truth().snapshots()) == 3


def test_a_creation_whose_answer_is_lost_has_happened_once(case: Case) -> None:
    name = (case.name[0], "u")
    case.proxy.behave(losing_commit_answers)
    with (
        pytest.raises(CommitStateUnknownException),
        case.catalog.create_table_transaction(name, ROWS.schema, properties=PROPERTIES) as transaction,
    ):
        transaction.append(ROWS)
    created = case.honest_catalog.load_table(name)
    assert Counter(created.scan().to_arrow().column("id").to_pylist()) == times(1)
    assert len(created.snapshots()) == 1
