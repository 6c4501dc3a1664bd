"""Python, the command and SQL offer the same operations with the same arguments, and say the same of what came of them.

What one of them does not have stands here, with the reason.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import pyarrow as pa
import pytest

from tablecrypt import maintenance as m
from tablecrypt.cli.commands import COMMANDS, LazyGroup
from tablecrypt.errors import ConfigurationError
from tablecrypt.operations import OPERATIONS as DECLARED
from tablecrypt.spark.sql.calls import Call, table_of
from tablecrypt.spark.sql.procedures import PROCEDURES
from tablecrypt.spark.sql.statements.operations import procedure_of
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.command import Command
from tests.support.protected_tables import Clients, clients, protected_table, write_as_java_does
from tests.support.tables import encrypted_sql_catalog, ids, table_with_history

OPERATIONS: Final[dict[str, Callable[..., Any]]] = {name: getattr(m, name) for name in m.__all__ if inspect.isfunction(getattr(m, name))}
NOT_IN_SQL: Final = {
    "changes_since": "compares with a report in a file of the caller's",
    "describe": "Spark's own DESCRIBE TABLE EXTENDED and the metadata tables show it",
    "doctor_without_catalog": "SQL has a catalog",
    "inspect": "the metadata tables show it: SELECT * FROM prod.db.t.snapshots",
    "list_tables": "Spark's own SHOW NAMESPACES and SHOW TABLES list them",
    "on_tables": "takes a function of Python",
    "write_evidence": "writes a file of the caller's",
}
NO_ARGUMENTS_IN_SQL: Final = {
    "catalog": "is what is called",
    "now": "is for tests",
    "progress": "is a function; Spark's own pages show how far jobs are",
    "resume_from": "is a file on the driver's machine, which who may send SQL must not choose",
    "runner": "is the session's executors",
}
OF_ICEBERG: Final = {
    "remove_orphan_files": {"folder": "location", "listed": "file_list_view", "despite_other_prefixes": "prefix_mismatch_mode"},
    "audit": {"target": "table"},
}
"""Arguments that have other names in SQL."""
TYPES: Final = {
    "Mapping[str, str]": "MAP<STRING, STRING>",
    "Sequence[int]": "ARRAY<BIGINT>",
    "Sequence[str]": "ARRAY<STRING>",
    "Table": "STRING",
    "Table | Catalog": "STRING",
    "bool": "BOOLEAN",
    "dt.datetime": "TIMESTAMP",
    "float": "DOUBLE",
    "int": "BIGINT",
    "str": "STRING",
    "str | BooleanExpression": "STRING",
    "str | BooleanExpression | FileCondition": "STRING",
    "str | SortColumn | ZOrder | Sequence[str | SortColumn | ZOrder]": "ARRAY<STRING>",
}
ROWS_OF_THEIR_OWN: Final = {"audit", "doctor", "remove_orphan_files"}
"""Procedures that return a row for each finding, check or file."""
OF_SPARK_TABLES: Final = {"migrate": {"drop_backup", "backup_table_name", "parallelism", "ignore_missing_files"}}
"""Arguments for tables of Spark's session catalog."""
NOT_IN_ROWS: Final = {"verify": {"resumed"}}
"""What follows from an argument that SQL does not have."""

NOT_IN_COMMAND: Final = {
    "changes_since": "audit --since",
    "doctor_without_catalog": "what doctor does where the catalog does not load",
    "on_tables": "--include and --exclude",
    "write_evidence": "audit --bundle",
}
NO_OPTIONS: Final = {
    "listed": "comes from a query",
    "now": "is for tests",
    "progress": "--progress is of all commands",
}
OPTIONS_OF: Final = {"runner": "use_spark"}
ROWS: Final = pa.table({"id": [1, 2], "ssn": ["SSN-1", "SSN-2"], "note": ["a", "b"]})


def call(catalog: Any, procedure: str, **arguments: Any) -> dict[str, Any]:
    """The one row of a call, with maps as Spark shows them."""
    run = PROCEDURES[procedure]
    rows = table_of(run.run(Call(catalog, "prod", (), arguments)), run.columns)
    [row] = rows.to_pylist(maps_as_pydicts="strict")
    return dict(row)


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - NOT_IN_SQL.keys()))
def test_every_argument_of_an_operation_is_one_of_its_procedure(name: str) -> None:
    given = {each.name: each for each in PROCEDURES[name].parameters}
    for argument, parameter in inspect.signature(OPERATIONS[name]).parameters.items():
        if argument in NO_ARGUMENTS_IN_SQL:
            continue
        of_sql = given.pop(OF_ICEBERG.get(name, {}).get(argument, argument))
        if of_sql.name == argument:
            assert of_sql.type == TYPES[str(parameter.annotation).removesuffix(" | None")]
    if name not in OF_ICEBERG:
        assert given.keys() == OF_SPARK_TABLES.get(name, set())


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - NOT_IN_SQL.keys() - ROWS_OF_THEIR_OWN))
def test_the_row_of_a_procedure_says_all_that_the_result_says(name: str) -> None:
    result = typing.get_type_hints(OPERATIONS[name])["return"]
    said = {each.name for each in dataclasses.fields(result)} | {
        attribute.removeprefix("is_")
        for attribute in dir(result)
        if isinstance(getattr(result, attribute), property) and (attribute[:3] == "is_" or attribute in ("verdict", "incomplete_because"))
    }
    assert set(PROCEDURES[name].columns.names) == said - NOT_IN_ROWS.get(name, set())


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - NOT_IN_COMMAND.keys()))
def test_every_argument_of_an_operation_is_an_option_of_its_command(name: str) -> None:
    command_name = DECLARED[name].command
    assert command_name in COMMANDS
    command = LazyGroup().get_command(click.Context(LazyGroup()), command_name)
    assert command is not None
    _, *arguments = inspect.signature(OPERATIONS[name]).parameters
    assert {OPTIONS_OF.get(each, each) for each in arguments if each not in NO_OPTIONS} <= {parameter.name for parameter in command.params}


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - NOT_IN_SQL.keys()))
def test_a_procedure_follows_the_declaration_of_its_operation(name: str) -> None:
    declared, procedure = DECLARED[name], PROCEDURES[name]

    assert (procedure.only_reads, procedure.runs_jobs) == (declared.only_reads, declared.on_files)
    if declared.procedure:
        assert procedure.parameters == procedure_of(OPERATIONS[name]).parameters
        assert procedure.columns == procedure_of(OPERATIONS[name]).columns


def test_procedures_that_run_jobs_can_run_without_any() -> None:
    """As an error says, where the planner's PySpark is of another version."""
    with_jobs = {name for name, procedure in PROCEDURES.items() if procedure.runs_jobs}
    assert with_jobs == {name for name, procedure in PROCEDURES.items() if "workers" in {each.name for each in procedure.parameters}}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("rotate_kek", {}),
        ("rotate_column_keks", {}),
        ("rewrap", {}),
        ("rewrap_column_keks", {}),
        ("prune_keys", {}),
        ("reencrypt", {"older_than": 2**52, "data_key_length": 32, "branch": "side", "workers": 1}),
        ("reencrypt", {"out_of_line": True, "accept_masks": True}),
        ("compact", {"rewrite_all": True, "sort_by": ["id"]}),
        ("compact", {"apply_deletes": True, "branch": "main"}),
        ("rescue", {"expire_lost": True}),
        ("relocate", {"location": "file:///elsewhere/copy", "current_only": True}),
        ("share", {"to_key_id": "alias/people", "location": "file:///elsewhere/share", "row_filter": "id < 20"}),
        ("shred", {"whole_table": "db.t"}),
        ("shred", {"all_but_heads": True, "replace_heads": True}),
    ],
)
def test_a_dry_run_says_in_sql_what_it_says_in_python(tmp_path: Path, aws: AwsServer, name: str, arguments: dict[str, Any]) -> None:
    catalog = encrypted_sql_catalog(tmp_path, aws)
    table_with_history(catalog, "db.t")
    converted = Call(catalog, "prod", (), {"table": "db.t", **arguments}).options(OPERATIONS[name])
    in_python = OPERATIONS[name](dry_run=True, **converted).to_json()
    assert json.loads(json.dumps(call(catalog, name, table="db.t", dry_run=True, **arguments))) == in_python


def test_a_share_ends_in_sql_as_in_python(tmp_path: Path, aws: AwsServer) -> None:
    catalog = encrypted_sql_catalog(tmp_path, aws)
    table = table_with_history(catalog, "db.t")
    made = m.share(table, aws.kms_key_id("alias/people"), f"file://{tmp_path}/share", "id < 20")
    foretold = m.unshare(table, made.share_uuid, dry_run=True).to_json()
    assert json.loads(json.dumps(call(catalog, "unshare", table="db.t", share=made.location, dry_run=True))) == foretold
    assert call(catalog, "unshare", table="db.t", share=made.share_uuid)["complete"] is True
    assert m.shares(table).shares == ()


def test_protected_columns_are_shared_in_sql_and_the_share_moves(tmp_path: Path, aws: AwsServer) -> None:
    catalog = encrypted_sql_catalog(tmp_path, aws)
    table = table_with_history(catalog, "db.t")
    with table.transaction() as transaction:
        transaction.set_properties({"encryption.column-keys": f"{aws.new_key()}: note"})
    m.reencrypt(table, out_of_line=True)
    given = {"to_key_id": aws.kms_key_id("alias/people"), "location": f"file://{tmp_path}/share", "row_filter": "id < 20"}
    key_id = aws.new_key()

    made = call(catalog, "share", table="db.t", columns={"note": key_id}, rewrite=True, **given)
    assert made["protected"] == {"note": key_id}
    catalog.register_table("db.theirs", made["metadata_location"])
    updated = call(catalog, "share", table="db.t", update=True, rewrite=True, **{**given, "row_filter": "id < 15"})

    assert call(catalog, "accept_update", table="db.theirs", metadata_location=updated["metadata_location"])["moved"] is True
    assert ids(catalog.load_table("db.theirs")) == ids(table.refresh(), row_filter="id < 15")


def test_an_erasure_says_in_sql_what_it_says_in_python(tmp_path: Path, aws: AwsServer) -> None:
    catalog = encrypted_sql_catalog(tmp_path, aws)
    table = table_with_history(catalog, "db.t")
    foretold = m.erase(table, "id = 5", dry_run=True).to_json()
    in_sql = json.loads(json.dumps(call(catalog, "erase", table="db.t", row_filter="id = 5", dry_run=True)))
    assert {**in_sql, "time": ""} == {**foretold, "time": ""}
    assert call(catalog, "erase", table="db.t", row_filter="id = 5", workers=1)["complete"] is True
    assert table.refresh().scan("id = 5").count() == 0


class TestProtectedColumns:
    @pytest.fixture
    def both(self, tmp_path: Path) -> Clients:
        return clients(tmp_path)

    @pytest.fixture
    def people(self, both: Clients) -> EncryptedTable:
        table = protected_table(both.payroll)
        table.append(ROWS)
        return table

    def test_all_three_say_which_columns_were_not_verified(self, both: Clients, people: EncryptedTable) -> None:
        in_python = m.verify(both.analyst.load_table("db.people"))
        assert (in_python.is_good, in_python.is_complete, in_python.unchecked_columns) == (True, False, {"ssn": 1, "person.email": 1})

        in_sql = call(both.analyst, "verify", table="db.people")
        assert (in_sql["good"], in_sql["complete"]) == (True, False)
        assert in_sql["unchecked_columns"] == in_python.unchecked_columns
        of_payroll = call(both.payroll, "verify", table="db.people")
        assert (of_payroll["good"], of_payroll["complete"], of_payroll["unchecked_columns"]) == (True, True, {})
        assert not call(both.payroll, "verify", table="db.people", quick=True)["complete"]

        sentence = "2 columns in 1 file were not authenticated; all else is intact"
        printed = command(both, "analyst").run("verify", "db.people").stdout
        assert printed.splitlines()[-1] == in_python.verdict == in_sql["verdict"] == sentence
        assert command(both, "payroll").run("verify", "db.people").stdout.splitlines()[-1] == "every file is intact"
        assert json.loads(command(both, "analyst").run("verify", "db.people", "--json").stdout)["complete"] is False

    def test_keks_of_columns_are_rotated_and_rewrapped(self, both: Clients, people: EncryptedTable) -> None:
        before = call(both.payroll, "rewrap_column_keks", table="db.people")["keks"]
        assert before.keys() == {"pii"}
        foretold = call(both.payroll, "rotate_column_keks", table="db.people", dry_run=True)
        assert (foretold["dry_run"], foretold["new_keks"], foretold["column_keys"]) == (True, {}, 2)
        rotated = call(both.payroll, "rotate_column_keks", table="db.people")
        assert rotated["old_keks"] == before["pii"]
        after = call(both.payroll, "rewrap_column_keks", table="db.people")["keks"]
        assert after == {"pii": [rotated["new_keks"]["pii"]]}
        assert people.refresh().scan(selected_fields=("ssn",)).to_arrow()["ssn"].to_pylist() == ["SSN-1", "SSN-2"]

    def test_a_column_is_shredded_once_it_is_named_and_a_dry_run_only_says_so(self, both: Clients, people: EncryptedTable) -> None:
        arguments = {"table": "db.people", "column": "ssn", "delete_below": [people.location()]}
        with pytest.raises(ConfigurationError, match="was protected"):
            call(both.payroll, "shred_column", **{**arguments, "column": "note"})
        foretold = call(both.payroll, "shred_column", **arguments, dry_run=True)
        assert foretold["dry_run"]
        assert people.refresh().scan(selected_fields=("ssn",)).to_arrow()["ssn"].to_pylist() == ["SSN-1", "SSN-2"]

        done = call(both.payroll, "shred_column", **arguments)

        assert (done["column"], done["complete"], done["column_keys"]) == ("ssn", True, foretold["column_keys"])
        assert call(both.payroll, "verify", table="db.people")["unchecked_columns"] == {"ssn": 1}

    def test_what_the_refusal_of_reencrypt_tells_users_to_pass_is_an_argument(self, both: Clients, people: EncryptedTable) -> None:
        """An engine without the right has copied masks, which are what the column holds now."""
        write_as_java_does(people, both.analyst.load_table("db.people").scan().to_arrow())
        with pytest.raises(ConfigurationError, match="accept_masks => true in SQL"):
            call(both.payroll, "reencrypt", table="db.people", out_of_line=True)
        done = call(both.payroll, "reencrypt", table="db.people", out_of_line=True, accept_masks=True)
        assert (done["data_files"], done["in_line"]) == (1, 1)


def command(both: Clients, who: str) -> Command:
    return Command.of(getattr(both, who))


def test_all_three_say_that_no_table_was_looked_at(tmp_path: Path) -> None:
    both = clients(tmp_path)

    assert m.audit(both.payroll).is_empty
    with pytest.raises(ConfigurationError, match="0 tables of catalog prod were looked at"):
        list(PROCEDURES["audit"].run(Call(both.payroll, "prod", (), {})))
    done = command(both, "payroll").run("audit")
    assert (done.code, done.stdout) == (2, "0 tables looked at\n")
    protected_table(both.payroll)
    assert command(both, "payroll").run("audit").code == 0
