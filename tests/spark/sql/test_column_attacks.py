"""Attacks on protected columns through Spark SQL: weaker protections, names that move, and statements that a change overtakes.

    analyst         may commit, and has the table's key alone; he runs statements, and commits past this package
    server          a REST catalog that answers with other metadata than was committed
    stale writer    a statement whose tasks run, or a snapshot that is staged under a WAP id, while somebody else changes the protection

The victim may use every key. Each test looks at what the table's key opens of the files, and at all rows of the victim.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate

import tablecrypt.spark as tcs
from tablecrypt import maintenance
from tablecrypt.maintenance import FindingKind
from tablecrypt.maintenance.columns.key_changes import shred_column
from tablecrypt.table.table import EncryptedTable
from tests.spark.conftest import Lake
from tests.support.aws import AwsServer
from tests.support.lying_rest_server import LyingRestServer
from tests.support.plaintext import CANARY
from tests.support.protected_tables import opened_by_table_key
from tests.support.restricting_server import RestrictingServer
from tests.support.tables import data_files, metadata_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]

ROWS: Final = pa.table(
    {"id": [1, 2], "ssn": [f"{CANARY}-1", f"{CANARY}-2"], "note": ["a", "b"], "person": [{"email": f"{CANARY}@1", "age": 7}] * 2}
)
PREFIX: Final = "encryption.column.2"
PLAIN: Final = "TBLPROPERTIES ('encryption.key-id' = 'alias/orders')"
TAKEN: Final = "takes the name of the protected column"


@dataclass(frozen=True)
class Attacked:
    """A table whose columns ssn and person.email are protected, and who uses it.

    Attributes:
        lake: its catalog.
        aws: the key service.
        name: in the catalog.
        key: the columns' master key.
    """

    lake: Lake
    aws: AwsServer
    name: str
    key: str

    @classmethod
    def made(cls, lake: Lake, aws: AwsServer, name: str, **properties: str) -> Attacked:
        """A new one, with ROWS."""
        key = aws.new_key()
        declared = {"encryption.key-id": "alias/orders", "encryption.column-keys": f"{key}: ssn, person.email", **properties}
        lake.catalog.create_table(name, ROWS.schema, properties=declared).append(ROWS)
        return cls(lake, aws, name, key)

    @property
    def table(self) -> EncryptedTable:
        """As the victim loads it now."""
        return cast("EncryptedTable", self.lake.catalog.load_table(self.name))

    def declare(self, **properties: str) -> None:
        """Change the protection, as the victim."""
        with self.table.transaction() as transaction:
            transaction.set_properties(
                {f"encryption.{name.replace('__', '.').replace('_', '-')}": value for name, value in properties.items()}
            )

    def commit_past_checks(self, updates: Mapping[str, str], removals: Sequence[str] = ()) -> None:
        """Commit properties, as the analyst, past what his own client checks."""
        catalog = load_catalog("prod", **self.lake.properties, **{"encryption.allowed-key-ids": "alias/orders"})
        removing = (RemovePropertiesUpdate(removals=list(removals)),) if removals else ()
        catalog.commit_table(catalog.load_table(self.name), (), (*removing, SetPropertiesUpdate(updates=dict(updates))))

    def seen(self) -> bytes:
        """What the table's key opens of the files of the current snapshot."""
        return b"".join(opened_by_table_key(self.table))


def refused(session: SparkSession, statement: str) -> str:
    """The one line with which a statement is refused; nothing where it is not."""
    try:
        session.sql(statement).collect()
    except Exception as error:  # noqa: BLE001  Spark wraps errors by where they happen
        text = str(error)
        assert "Traceback" not in text
        return text
    return ""


def ids(session: SparkSession, name: str) -> list[int]:
    return sorted(row["id"] for row in session.sql(f"SELECT id FROM {name}").collect())


WEAKER: Final = (
    "ALTER TABLE {t} SET TBLPROPERTIES ('encryption.column-mask.ssn' = 'truncate(64)')",
    "ALTER TABLE {t} SET TBLPROPERTIES ('encryption.column-keys' = '')",
    "ALTER TABLE {t} SET TBLPROPERTIES ('encryption.column-keys' = '{other}: ssn, person.email')",
    "ALTER TABLE {t} UNSET TBLPROPERTIES ('encryption.column-keys')",
    "ALTER TABLE {t} SET TBLPROPERTIES ('" + PREFIX + ".mask' = 'truncate(64)')",
    "ALTER TABLE {t} SET TBLPROPERTIES ('" + PREFIX + ".key-id' = '{other}')",
    "ALTER TABLE {t} SET TBLPROPERTIES ('" + PREFIX + ".since' = '9')",
    "ALTER TABLE {t} SET TBLPROPERTIES ('" + PREFIX + ".former-key-id' = '{other}')",
    "ALTER TABLE {t} UNSET TBLPROPERTIES ('" + PREFIX + ".key-id')",
    "ALTER TABLE {t} UNSET TBLPROPERTIES IF EXISTS ('" + PREFIX + ".key-id', '" + PREFIX + ".mask')",
    "ALTER TABLE {t} UNSET TBLPROPERTIES ('encryption.column-keys', 'encryption.column-mask.ssn')",
    "REPLACE TABLE {t} " + PLAIN + " AS SELECT 1L AS id, 'x' AS ssn, 'a' AS note",
)
"""What an analyst runs, whose own table {t} is not; {other} is another master key."""


def test_no_statement_weakens_a_protection_without_the_columns_key(
    of_analyst: SparkSession, spark: SparkSession, prod: Lake, aws: AwsServer, new_name: str
) -> None:
    people, other = Attacked.made(prod, aws, new_name), aws.new_key()
    before = people.table.metadata_location
    answers = {each: refused(of_analyst, each.format(t=f"prod.{new_name}", other=other)) for each in WEAKER}

    assert [each for each, answer in answers.items() if not answer] == []
    assert {each: answer for each, answer in answers.items() if len(answer.strip().splitlines()) != 1} == {}
    assert people.table.metadata_location == before
    spark.sql(f"INSERT INTO prod.{new_name} BY NAME SELECT 3L AS id, '{CANARY}-3' AS ssn, 'c' AS note, NULL AS person")
    assert CANARY.encode() not in people.seen()
    assert [row["ssn"] for row in spark.sql(f"SELECT ssn FROM prod.{new_name} ORDER BY id").collect()] == [
        f"{CANARY}-{each}" for each in (1, 2, 3)
    ]


def weaker_properties(key: str, other: str) -> dict[str, tuple[dict[str, str], tuple[str, ...], str]]:
    """By what they do: what is set, what is removed, and what the refusal says."""
    return {
        "a mask that shows values": ({f"{PREFIX}.mask": "truncate(64)"}, (), "masked by null"),
        "no protection": ({f"{PREFIX}.former-key-id": key}, (f"{PREFIX}.key-id", f"{PREFIX}.mask"), "do not protect"),
        "another master key": ({f"{PREFIX}.key-id": other, f"{PREFIX}.former-key-id": key}, (), "was under master key"),
        "another former master key": ({f"{PREFIX}.former-key-id": other}, (), "former master key"),
        "files without the protection": ({f"{PREFIX}.since": "9"}, (), "up to sequence number 9"),
    }


OF_VALUES: Final = (
    "SELECT ssn FROM {t}",
    "SELECT count(*) FROM {t} WHERE upper(ssn) = 'X'",
    "INSERT INTO {t} BY NAME SELECT 3L AS id, 'x' AS ssn, 'c' AS note, NULL AS person",
    "INSERT OVERWRITE {t} BY NAME SELECT 3L AS id, 'x' AS ssn, 'c' AS note, NULL AS person",
    "UPDATE {t} SET note = 'z' WHERE id = 1",
    "MERGE INTO {t} t USING (SELECT 9L AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, ssn) VALUES (9, 'x')",
    "CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
    "CREATE TABLE {t}_copy " + PLAIN + " AS SELECT * FROM {t}",
)
"""What reads or writes values of the protected column."""


def test_a_weaker_protection_that_was_committed_past_this_package_is_used_by_no_statement(
    spark: SparkSession, prod: Lake, aws: AwsServer, new_name: str
) -> None:
    other = aws.new_key()
    for number, change in enumerate(weaker_properties("", "")):
        people = Attacked.made(prod, aws, f"{new_name}_{number}")
        updates, removals, reason = weaker_properties(people.key, other)[change]
        people.commit_past_checks(updates, removals)
        before = people.table.metadata_location
        for statement in OF_VALUES if number == 0 else OF_VALUES[:3]:
            answer = refused(spark, statement.format(t=f"prod.{people.name}", catalog="prod", name=people.name))
            assert reason in answer, (change, statement, answer)
            assert people.table.metadata_location == before, (change, statement)


NAMES_THAT_MOVE: Final[Mapping[str, Sequence[str]]] = {
    "renamed and added": ("RENAME COLUMN ssn TO ssn_old", "ADD COLUMN ssn STRING"),
    "added in capitals": ("RENAME COLUMN ssn TO ssn_old", "ADD COLUMN SSN STRING"),
    "exchanged": ("RENAME COLUMN ssn TO third", "RENAME COLUMN note TO ssn"),
    "dropped and added": ("DROP COLUMN ssn", "ADD COLUMN ssn STRING"),
    "a struct in its place": ("DROP COLUMN ssn", "ADD COLUMN Ssn STRUCT<number: STRING>"),
    "a field of a struct": ("RENAME COLUMN person.email TO mail", "ADD COLUMN person.EMAIL STRING"),
    "the struct": ("RENAME COLUMN person TO human", "ADD COLUMN Person STRUCT<email: STRING>"),
    "the struct as a list": ("RENAME COLUMN person TO human", "ADD COLUMN person ARRAY<STRUCT<email: STRING>>"),
    "evolution of a merge": (
        "RENAME COLUMN ssn TO ssn_old",
        "MERGE WITH SCHEMA EVOLUTION INTO {t} t USING (SELECT 9L AS id, 'x' AS ssn) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    ),
}


def test_no_statement_gives_the_name_of_a_protected_column_to_another_one(
    of_analyst: SparkSession, spark: SparkSession, prod: Lake, aws: AwsServer, new_name: str
) -> None:
    answers = {}
    for number, (move, (first, last)) in enumerate(NAMES_THAT_MOVE.items()):
        people = Attacked.made(prod, aws, f"{new_name}_{number}")
        name = f"prod.{people.name}"
        of_analyst.sql(f"ALTER TABLE {name} {first}")
        # A merge writes rows, which takes the columns' key: it is the victim's, who has been led to it.
        session, statement = (spark, last.format(t=name)) if last.startswith("MERGE") else (of_analyst, f"ALTER TABLE {name} {last}")
        answers[move] = refused(session, statement)
    assert {move: answer for move, answer in answers.items() if TAKEN not in answer or len(answer.strip().splitlines()) != 1} == {}


REPLACED: Final = (
    "CREATE OR REPLACE TABLE {t} " + PLAIN + " AS SELECT id, ssn, note FROM {t}",
    "CREATE OR REPLACE TABLE {t} (id BIGINT, ssn STRING, note STRING) " + PLAIN,
    "CREATE OR REPLACE TABLE {t} (id BIGINT, SSN STRING, note STRING) " + PLAIN,
    "CREATE OR REPLACE TABLE {t} (id BIGINT, note STRING) " + PLAIN + "; ALTER TABLE {t} ADD COLUMN ssn STRING",
)
"""Statements without column keys, that replace a table {t}."""


def test_a_table_that_is_replaced_keeps_its_columns_protected_whoever_replaces_it(
    spark: SparkSession, of_analyst: SparkSession, prod: Lake, aws: AwsServer, new_name: str
) -> None:
    for number, (session, statement) in enumerate(zip((spark, of_analyst, spark, of_analyst), REPLACED, strict=True)):
        people = Attacked.made(prod, aws, f"{new_name}_{number}")
        name = f"prod.{people.name}"
        answers = [refused(session, each) for each in statement.format(t=name).split("; ")]
        written = refused(spark, f"INSERT INTO {name} BY NAME SELECT 7L AS id, '{CANARY}-7' AS ssn, 'c' AS note")
        assert not data_files(people.table) or CANARY.encode() not in people.seen(), (statement, answers)
        if not written:
            [row] = spark.sql(f"SELECT ssn FROM {name} WHERE id = 7").collect()
            assert row["ssn"] == f"{CANARY}-7"
            assert {row[0] for row in of_analyst.sql(f"SELECT ssn FROM {name}").collect()} == {None}
        else:
            assert any(answers), (statement, written)


@contextmanager
def catalog_of(spark: SparkSession, server: RestrictingServer, properties: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session that knows a server's catalog as `told`."""
    session = spark.newSession()
    keys = {name: value for name, value in properties.items() if "kms" in name or name == "client.region"}
    tcs.catalog(session, "told", server.client_properties(**keys))
    yield session


def test_a_servers_answer_weakens_no_protection_and_moves_no_name(spark: SparkSession, prod: Lake, aws: AwsServer, new_name: str) -> None:
    people, other = Attacked.made(prod, aws, new_name), aws.new_key()
    path = metadata_path(people.table)
    text = path.read_text()

    def moved(metadata: dict[str, Any]) -> None:
        schema = json.loads(json.dumps(metadata["schemas"][-1]))
        taken, given = (next(field for field in schema["fields"] if field["name"] == name) for name in ("ssn", "note"))
        taken["name"], given["name"] = "note", "ssn"
        schema["schema-id"] = metadata["current-schema-id"] = 1
        metadata["schemas"].append(schema)

    def weakened(updates: Mapping[str, str], removals: Sequence[str]) -> Callable[[dict[str, Any]], None]:
        def change(metadata: dict[str, Any]) -> None:
            kept = {name: value for name, value in metadata["properties"].items() if name not in removals}
            metadata["properties"] = {**kept, **updates}

        return change

    answers: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {"names exchanged": (moved, TAKEN)}
    for name, (updates, removals, reason) in weaker_properties(people.key, other).items():
        answers[name] = weakened(updates, removals), reason

    with LyingRestServer(prod.catalog, lambda: path) as server, catalog_of(spark, server, prod.properties) as session:
        for name, (edit, reason) in answers.items():
            metadata = json.loads(text)
            edit(metadata)
            path.write_text(json.dumps(metadata))
            for statement in OF_VALUES[:3]:
                answer = refused(session, statement.format(t=f"told.{new_name}", catalog="told", name=new_name))
                assert reason in answer, (name, statement, answer)
        path.write_text(text)
    assert CANARY.encode() not in people.seen()


def shred(people: Attacked) -> None:
    shred_column(people.table, "ssn", delete_below=[people.table.location()])


def rename(people: Attacked) -> None:
    with people.table.update_schema() as update:
        update.rename_column("ssn", "social")


@dataclass(frozen=True)
class Change:
    """What somebody else commits: how rows of before are refused then, if they are, and which columns are hidden afterwards."""

    make: Callable[[Attacked], object]
    refusal: str
    hidden: tuple[str, ...] = ("SSN",)


SINCE: Final = "since the rows were written; nothing was committed"
CHANGES: Final[Mapping[str, Change]] = {
    "declared": Change(lambda people: people.declare(column_keys=f"{people.key}: ssn, person.email, note"), SINCE, hidden=("SSN", "NOTE")),
    "another key": Change(lambda people: people.declare(column_keys=f"{people.aws.new_key()}: ssn, person.email"), SINCE),
    "mask null": Change(lambda people: people.declare(column_mask__ssn="null"), SINCE),
    "shredded": Change(shred, SINCE),
    "renamed": Change(rename, "its schema was changed while the rows were written"),
}


def overtaken(spark: SparkSession, folder: Path, statement: str, change: Callable[[], object]) -> str:
    """Run a statement that calls `held`, and make a change after its first task has begun. Return what refuses the statement."""
    folder.mkdir()
    begun, go = folder / "begun", folder / "go"

    def held(text: str | None) -> str | None:
        begun.touch()
        give_up = time.monotonic() + 100
        while not go.exists() and time.monotonic() < give_up:
            time.sleep(0.02)
        return text

    spark.udf.register("held", held)
    answers: list[str] = []
    runs = threading.Thread(target=lambda: answers.append(refused(spark, statement)))
    runs.start()
    while not begun.exists() and runs.is_alive():
        time.sleep(0.02)
    assert begun.exists(), answers
    try:
        change()
    finally:
        go.touch()
        runs.join()
    return answers[0]


@contextmanager
def waiting(spark: SparkSession, kind: str, value: str) -> Iterator[None]:
    """Have writes wait for somebody who publishes them, under an id or in a branch."""
    spark.conf.set(f"spark.wap.{kind}", value)
    try:
        yield
    finally:
        spark.conf.unset(f"spark.wap.{kind}")


def rows_or_refusal(session: SparkSession, query: str) -> object:
    return refused(session, query) or session.sql(query).collect()


def check_hidden(people: Attacked, change: Change) -> None:
    seen = people.seen()
    for column in change.hidden:
        assert f"{CANARY}-{column}".encode() not in seen


WRITES: Final = {
    "insert": f"INSERT INTO {{t}} SELECT id, held('{CANARY}-SSN'), '{CANARY}-NOTE', NULL FROM range(3, 4)",
    "update": f"UPDATE {{t}} SET ssn = held('{CANARY}-SSN'), note = '{CANARY}-NOTE' WHERE id = 2",
    "merge": f"MERGE INTO {{t}} t USING (SELECT id, held('{CANARY}-SSN') AS ssn FROM range(3, 4)) s ON t.id = s.id "
    f"WHEN NOT MATCHED THEN INSERT (id, ssn, note) VALUES (s.id, s.ssn, '{CANARY}-NOTE')",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_rows_of_a_statement_that_a_change_overtakes_are_committed_only_where_they_fit_it(
    spark: SparkSession, prod: Lake, aws: AwsServer, new_name: str, tmp_path: Path, change: Change
) -> None:
    writes = WRITES if change is CHANGES["declared"] else {"insert": WRITES["insert"]}
    for write, statement in writes.items():
        people = Attacked.made(prod, aws, f"{new_name}_{write}", **{"encryption.column-mask.ssn": "truncate(3)"})
        name = f"prod.{people.name}"
        answer = overtaken(spark, tmp_path / write, statement.format(t=name), lambda to=people: change.make(to))  # type: ignore[misc]
        assert change.refusal in answer, (write, answer)
        assert bool(answer) == bool(change.refusal), (write, answer)
        assert ids(spark, name) == ([1, 2] if change.refusal else [1, 2, 3])
        check_hidden(people, change)
        if change is not CHANGES["shredded"]:
            ssn = "social" if change is CHANGES["renamed"] else "ssn"
            found = {row["id"]: row[ssn] for row in spark.sql(f"SELECT id, {ssn} FROM {name}").collect()}
            assert found == {1: f"{CANARY}-1", 2: f"{CANARY}-2"} | ({} if change.refusal else {3: f"{CANARY}-SSN"})


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_staged_snapshot_is_published_only_where_it_fits_what_was_changed_since(
    spark: SparkSession, of_analyst: SparkSession, prod: Lake, aws: AwsServer, new_name: str, change: Change
) -> None:
    """Its rows are older than the change, as those of the main branch are: reencrypt brings both in line where nothing is refused."""
    audited = {"encryption.column-mask.ssn": "truncate(3)", "write.wap.enabled": "true"}
    people, name = Attacked.made(prod, aws, new_name, **audited), f"prod.{new_name}"
    with waiting(spark, "id", "load-7"):
        spark.sql(f"INSERT INTO {name} VALUES (3, '{CANARY}-SSN', '{CANARY}-NOTE', NULL)")
    # Something else is committed, so that publishing appends the rows' files to another parent.
    spark.sql(f"INSERT INTO {name} VALUES (4, 'x', 'd', NULL)")
    change.make(people)
    before, is_refused = people.table.metadata_location, change in (CHANGES["declared"], CHANGES["another key"])

    answer = refused(spark, f"CALL prod.system.publish_changes('{new_name}', 'load-7')")

    assert (SINCE in answer) == bool(answer) == is_refused, answer
    assert (people.table.metadata_location == before) == is_refused
    assert ids(spark, name) == ([1, 2, 4] if is_refused else [1, 2, 3, 4])
    check_hidden(people, change)
    if not is_refused and change.hidden == ("SSN",) and change is not CHANGES["shredded"]:
        ssn = "social" if change is CHANGES["renamed"] else "ssn"
        maintenance.reencrypt(people.table)
        assert spark.sql(f"SELECT {ssn} FROM {name} WHERE id = 3").collect()[0][0] == f"{CANARY}-SSN"
        assert f"{CANARY}-SSN" not in str(rows_or_refusal(of_analyst, f"SELECT {ssn} FROM {name}"))


def test_rows_of_an_audit_branch_are_hidden_by_the_next_reencryption_once_a_column_was_declared(
    spark: SparkSession, prod: Lake, aws: AwsServer, new_name: str
) -> None:
    people, name = Attacked.made(prod, aws, new_name, **{"write.wap.enabled": "true"}), f"prod.{new_name}"
    with waiting(spark, "branch", "audit"):
        spark.sql(f"INSERT INTO {name} VALUES (3, '{CANARY}-SSN', '{CANARY}-NOTE', NULL)")
    CHANGES["declared"].make(people)

    assert refused(spark, f"CALL prod.system.fast_forward('{new_name}', 'main', 'audit')") == ""

    assert {row["id"]: row["note"] for row in spark.table(name).collect()}[3] == f"{CANARY}-NOTE"
    assert "note" in {each.where for each in maintenance.audit(people.table).findings if each.kind == FindingKind.COLUMN_EXPOSED}
    maintenance.reencrypt(people.table)
    assert CANARY.encode() not in people.seen()
    assert {row["id"]: row["note"] for row in spark.table(name).collect()}[3] == f"{CANARY}-NOTE"


def test_a_statement_on_a_rest_server_is_overtaken_as_any(
    spark: SparkSession, prod: Lake, aws: AwsServer, new_name: str, tmp_path: Path
) -> None:
    people = Attacked.made(prod, aws, new_name)
    with RestrictingServer(prod.catalog) as server, catalog_of(spark, server, prod.properties) as session:
        change = CHANGES["declared"]
        answer = overtaken(session, tmp_path / "rest", WRITES["insert"].format(t=f"told.{new_name}"), lambda: change.make(people))
        assert SINCE in answer
        assert ids(session, f"told.{new_name}") == [1, 2]
        check_hidden(people, change)


def test_names_that_another_engine_moved_are_written_and_read_by_no_statement_and_other_columns_are_read(
    spark: SparkSession, prod: Lake, aws: AwsServer, new_name: str
) -> None:
    people = Attacked.made(prod, aws, new_name)
    path = metadata_path(people.table)
    metadata = json.loads(path.read_text())
    schema = json.loads(json.dumps(metadata["schemas"][-1]))
    for field in schema["fields"]:
        field["name"] = {"ssn": "note", "note": "SSN"}.get(field["name"], field["name"])
    schema["schema-id"] = metadata["current-schema-id"] = 1
    path.write_text(json.dumps(metadata | {"schemas": [*metadata["schemas"], schema]}))
    with sqlite3.connect(prod.properties["uri"].removeprefix("sqlite:///")) as database:
        database.execute("DELETE FROM tablecrypt_pins WHERE table_name = ?", (new_name.partition(".")[2],))
    name = f"prod.{new_name}"
    for statement in (
        "INSERT INTO {t} BY NAME SELECT 3L AS id, 'x' AS ssn, 'c' AS note, NULL AS person",
        "UPDATE {t} SET ssn = 'x' WHERE id = 1",
        "MERGE INTO {t} t USING (SELECT 9L AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, ssn) VALUES (9, 'x')",
        "CALL prod.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
        "SELECT * FROM {t}",
        "SELECT ssn FROM {t}",
        "SELECT note FROM {t}",
        "SELECT max(ssn) FROM {t}",
        "SELECT count(ssn) FROM {t}",
        "SELECT id FROM {t} WHERE note = 'a'",
        "SELECT id FROM {t} WHERE upper(ssn) = 'a'",
    ):
        assert TAKEN in refused(spark, statement.format(t=name, name=new_name)), statement
    assert [tuple(row) for row in spark.sql(f"SELECT id, person.age FROM {name} WHERE id > 1").collect()] == [(2, 7)]
    assert [tuple(row) for row in spark.sql(f"SELECT count(*), max(id) FROM {name}").collect()] == [(2, 2)]
    assert CANARY.encode() not in people.seen()
