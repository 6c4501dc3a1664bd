"""Protected columns on REST servers: one that lies about names, and one between whose answers a protection changes.

tests/security/test_declarations.py has the answers that weaken a protection, tests/security/test_stale_writers.py the commits of stale
writers to a server that answers as it should.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitStateUnknownException

from tablecrypt.errors import ConfigurationError, KeyIdChangedError
from tablecrypt.table.protection.writing import StaleWriteError
from tablecrypt_catalog import EncryptedRestCatalog
from tests.security.test_names_of_protected_columns import ROWS, TAKEN
from tests.security.test_stale_writers import CHANGES, PREVENTED, Change, check_rows, person, table_with_a_row
from tests.support.lying_rest_server import LyingRestServer
from tests.support.moved_names import MOVES, Step, take
from tests.support.protected_tables import Clients, loaded, opened_by_table_key, protected_table
from tests.support.restricting_server import RestrictingServer
from tests.support.tables import contents_below, files_below, folder_of, metadata_path

NAME: Final = "db.people"
SSN: Final = "078-05-SECRET"
NOTE: Final = "NOTE-SECRET"


def client(server: RestrictingServer, both: Clients, keyring: str = "payroll") -> EncryptedRestCatalog:
    properties = getattr(both, keyring).properties
    return server.client(**{name: value for name, value in properties.items() if "kms" in name})


@pytest.mark.parametrize("move", sorted(MOVES))
@pytest.mark.parametrize("forgotten", [False, True], ids=["with earlier schemas", "without them"])
def test_a_server_that_gives_a_name_to_another_column_gets_no_values_in_it(both: Clients, move: str, forgotten: bool) -> None:
    table = protected_table(both.payroll, appends=[ROWS])
    answered = _moved(both, MOVES[move], forgotten)
    with LyingRestServer(both.payroll, lambda: answered) as server:
        victim = loaded(client(server, both))
        before = files_below(folder_of(table))
        # Without earlier schemas, the name is in what the column's key authenticates.
        with pytest.raises(KeyIdChangedError if forgotten else ConfigurationError, match=TAKEN) as refused:
            victim.append(pa.table({"id": [3]}))
        assert "\n" not in str(refused.value)
        assert files_below(folder_of(table)) == before
    assert not any(b"SSN-0001" in found for found in opened_by_table_key(table))


def _moved(both: Clients, steps: Sequence[Step], forgotten: bool) -> Path:
    """Put what the server answers beside the table's metadata."""
    transaction = loaded(both.analyst).transaction()
    take(transaction, steps)
    metadata = json.loads(transaction.table_metadata.model_dump_json())
    if forgotten:
        metadata["schemas"] = [each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"]]
    path = metadata_path(loaded(both.payroll)).with_name("answer.metadata.json")
    path.write_text(json.dumps(metadata))
    return path


class ServerThatForgetsColumns(RestrictingServer):
    """A server that answers, once it is told to, as if no column had ever been protected."""

    forgets = False

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Answer one request."""
        status, content = super().answer(method, path, body)
        if self.forgets and status == 200:
            metadata = content["metadata"]
            own = ("encryption.column", "write.")
            metadata["properties"] = {name: value for name, value in metadata["properties"].items() if not name.startswith(own)}
            metadata["encryption-keys"] = [each for each in metadata["encryption-keys"] if "tablecrypt." not in str(each)]
        return status, content


def test_what_pins_refuse_in_the_answer_to_a_commit_is_not_written_by(both: Clients, tmp_path: Path) -> None:
    table = protected_table(both.payroll)
    with ServerThatForgetsColumns(both.payroll) as server:
        kms = {name: value for name, value in both.payroll.properties.items() if "kms" in name}
        victim = loaded(server.client(**kms, **{"encryption.pins": str(tmp_path / "pins.json")}))
        server.forgets = True
        with pytest.raises(KeyIdChangedError, match=r"is not protected now.*The commit .* stands") as refused:
            victim.transaction().set_properties({"owner": "payroll"}).commit_transaction()
        with pytest.raises(KeyIdChangedError, match="is not protected now"):
            victim.append(person(2, SSN, NOTE))

    assert "\n" not in str(refused.value)
    stands = loaded(both.payroll)
    assert stands.properties["owner"] == "payroll"
    # The refused file stays, and its key is in no metadata.
    assert stands.current_snapshot() is None
    assert not any(SSN.encode() in content for content in contents_below(folder_of(table)).values())


class ServerThatFailsOnce(RestrictingServer):
    """A server that fails a commit of rows, and then applies what somebody else has sent.

    Attributes:
        before_answer: what it does at the first commit.
        status: of its answer to that.
        is_applied: whether the commit lands all the same.
    """

    before_answer: Callable[[], object] | None = None
    status = 409
    is_applied = False

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Answer one request."""
        if method != "POST" or self.before_answer is None:
            return super().answer(method, path, body)
        before_answer, self.before_answer = self.before_answer, None
        if self.is_applied:
            super().answer(method, path, body)
        before_answer()
        return self.status, {"error": {"message": "try again", "type": "CommitFailedException", "code": self.status}}


each_refused = pytest.mark.parametrize("change", PREVENTED.values(), ids=PREVENTED)


@each_refused
def test_a_commit_that_is_tried_again_is_held_against_the_change_between(both: Clients, change: Change) -> None:
    table_with_a_row(both)
    with ServerThatFailsOnce(both.payroll) as server:
        transaction = loaded(client(server, both)).transaction()
        transaction.append(person(2, SSN, NOTE))
        server.before_answer = lambda: change.make(loaded(both.payroll))
        with pytest.raises(StaleWriteError, match="since the rows were written; nothing was committed"):
            transaction.commit_transaction()
    check_rows(both, change, is_written=False)


@each_refused
def test_rows_whose_commit_is_tried_again_are_written_as_the_table_is_now(both: Clients, change: Change) -> None:
    table_with_a_row(both)
    with ServerThatFailsOnce(both.payroll) as server:
        writer = loaded(client(server, both))
        server.before_answer = lambda: change.make(loaded(both.payroll))
        writer.append(person(2, SSN, NOTE))
    check_rows(both, change, is_written=True)


def test_a_commit_whose_answer_was_lost_is_not_made_again_under_another_protection(both: Clients) -> None:
    table_with_a_row(both)
    with ServerThatFailsOnce(both.payroll) as server:
        writer = loaded(client(server, both))
        server.status, server.is_applied = 500, True
        server.before_answer = lambda: CHANGES["declared"].make(loaded(both.payroll))
        with pytest.raises(CommitStateUnknownException):
            writer.append(person(2, SSN, NOTE))
    rows = loaded(both.payroll).scan(masked="error").to_arrow().to_pylist()
    assert {row["id"]: row["note"] for row in rows} == {1: "n", 2: NOTE}
