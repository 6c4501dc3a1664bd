"""Who may do what with protected columns, found out by doing it; the table of docs/column-keys.md is made of it.

Run `python -m tests.support.column_access` after a change; a test fails until it was run.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.types import StringType

from tablecrypt import maintenance
from tablecrypt.errors import TablecryptError
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.pages import MadePart
from tests.support.protected_tables import TABLE_KEY, clients, loaded, write_only
from tests.support.protection_changes import rename

PART: Final = MadePart("column-keys.md", "access")
ROWS: Final = pa.table({"id": [1, 2, 3], "ssn": ["SSN-1", "SSN-2", "SSN-3"], "note": ["a", "b", "c"]})
VALUES: Final = {"SSN-1", "SSN-2", "SSN-3", "SSN-4"}


def described(values: list[Any]) -> str:
    """Say whether what somebody sees of the column ssn are its values."""
    found = set(values)
    if not found:
        return "no rows"
    return "values" if found <= VALUES else "masks" if not found & VALUES else "both"


def counted(count: int) -> str:
    """Say how many rows there are."""
    return "1 row" if count == 1 else f"{count} rows"


def _duckdb(table: EncryptedTable, query: str, masked: str | None = None) -> list[Any]:
    connection = table.scan(masked=masked).to_duckdb("people")
    connection.register("known", pa.table({"ssn": ["SSN-2"]}))
    return [row[0] for row in connection.execute(query).fetchall()]


def _polars(table: EncryptedTable, query: str, masked: str | None = None) -> list[Any]:
    import polars as pl

    with pl.SQLContext({"people": table.to_polars(masked=masked)}) as context:
        return [row[0] for row in context.execute(query).collect().rows()]


def _done(change: Callable[[EncryptedTable], object]) -> Callable[[EncryptedTable], str]:
    def run(table: EncryptedTable) -> str:
        change(table)
        return "done"

    return run


def _add_column(table: EncryptedTable) -> None:
    with table.update_schema() as change:
        change.add_column("more", StringType())


def _drop_column(table: EncryptedTable) -> None:
    with table.update_schema() as change:
        change.delete_column("ssn")


def _mend(table: EncryptedTable) -> None:
    maintenance.compact(table, rewrite_all=True)


OF_LATE_FILES: Final = "reencrypt files from before the declaration"
"""Tried on a table whose column was declared after its file."""
OPERATIONS: Final[Mapping[str, Callable[[EncryptedTable], str]]] = {
    "read the column: Arrow": lambda table: described(table.scan().to_arrow()["ssn"].to_pylist()),
    "read the column: DuckDB": lambda table: described(_duckdb(table, "SELECT ssn FROM people")),
    "read the column: Polars": lambda table: described(_polars(table, "SELECT ssn FROM people")),
    'read the column: DuckDB, `masked="mask"`': lambda table: described(_duckdb(table, "SELECT ssn FROM people", "mask")),
    'read the column: Polars, `masked="mask"`': lambda table: described(_polars(table, "SELECT ssn FROM people", "mask")),
    'read the column: Arrow, `masked="error"`': lambda table: described(table.scan(masked="error").to_arrow()["ssn"].to_pylist()),
    "read other columns": lambda table: counted(table.scan(selected_fields=("id", "note")).to_arrow().num_rows),
    "read other columns: DuckDB": lambda table: counted(len(_duckdb(table, "SELECT id FROM people"))),
    "filter by another column": lambda table: counted(table.scan("id = 2").to_arrow().num_rows),
    "filter by the column: Arrow": lambda table: counted(table.scan("ssn = 'SSN-2'").to_arrow().num_rows),
    "filter by the column: DuckDB": lambda table: counted(len(_duckdb(table, "SELECT id FROM people WHERE ssn = 'SSN-2'"))),
    "filter by the column: Polars": lambda table: counted(len(_polars(table, "SELECT id FROM people WHERE ssn LIKE '%-2'"))),
    "join on the column: DuckDB": lambda table: counted(len(_duckdb(table, "SELECT id FROM people JOIN known USING (ssn)"))),
    "group by the column: DuckDB": lambda table: counted(len(_duckdb(table, "SELECT count(*) FROM people GROUP BY ssn"))),
    "group by the column: Polars": lambda table: counted(len(_polars(table, "SELECT count(*) FROM people GROUP BY ssn"))),
    "time travel": lambda table: described(table.scan(snapshot_id=table.snapshots()[0].snapshot_id).to_arrow()["ssn"].to_pylist()),
    "append": _done(lambda table: table.append(ROWS)),
    "delete by another column": _done(lambda table: table.delete("id = 2")),
    "delete by the column": _done(lambda table: table.delete("ssn = 'SSN-2'")),
    "upsert": _done(lambda table: table.upsert(pa.table({"id": [2], "ssn": ["SSN-4"], "note": ["d"]}), join_cols=["id"])),
    "overwrite by another column": _done(lambda table: table.overwrite(ROWS.slice(0, 1), "id = 2")),
    "compact": _done(_mend),
    "reencrypt": _done(maintenance.reencrypt),
    OF_LATE_FILES: _done(lambda table: maintenance.reencrypt(table, out_of_line=True)),
    "add a column": _done(_add_column),
    "rename the column": _done(rename),
    "rotate the table's KEK": _done(maintenance.rotate_kek),
    "rotate the columns' KEKs": _done(maintenance.rotate_column_keks),
    "audit, verify": _done(lambda table: (maintenance.audit(table), maintenance.verify(table))),
    "verify: columns left unchecked": lambda table: ", ".join(maintenance.verify(table).unchecked_columns) or "none",
    "relocate": _done(lambda table: maintenance.relocate(table, f"{table.location()}-copy")),
    "drop the column": _done(_drop_column),
    "shred the column": _done(lambda table: maintenance.shred_column(table, "ssn")),
}
CHANGES_FROM: Final = list(OPERATIONS).index("append")
"""The operations before it change nothing, and are tried on one table."""
PRINCIPALS: Final = ("both keys", "the table's key, and the column's to wrap only", "the table's key alone", "neither")


def access(folder: Path) -> dict[str, dict[str, str]]:
    """Return what became of each operation, by operation and principal. Those that change something are tried on tables of their own."""
    both = clients(folder)
    keyring = f"protected neither {folder}"
    MemoryKeyManagementClient({"kms.memory.name": keyring}, {"other": bytes(32)})
    neither = EncryptedSqlCatalog("prod", **{**both.payroll.properties, "kms.memory.name": keyring})
    catalogs = dict(zip(PRINCIPALS, (both.payroll, write_only(both), both.analyst, neither), strict=True))
    found: dict[str, dict[str, str]] = {operation: {} for operation in OPERATIONS}
    for at, (operation, run) in enumerate(OPERATIONS.items()):
        for number, (principal, catalog) in enumerate(catalogs.items()):
            name = "db.read" if at < CHANGES_FROM else f"db.t{at}_{number}"
            if not both.payroll.table_exists(name):
                declared = {"encryption.column-keys": "pii: ssn"}
                first = {} if operation == OF_LATE_FILES else declared
                table = both.payroll.create_table(name, ROWS.schema, properties={"encryption.key-id": TABLE_KEY, **first})
                table.append(ROWS)
                if not first:
                    table.transaction().set_properties(declared).commit_transaction()
            found[operation][principal] = _outcome(run, loaded(catalog, name))
    return found


def _outcome(run: Callable[[EncryptedTable], str], table: EncryptedTable) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return run(table)
    except Exception as error:  # noqa: BLE001  engines raise errors of their own around ours
        return f"`{own_error(error)}`"


def own_error(error: BaseException) -> str:
    """Return the name of this project's error class in an error that an engine may have put its own around."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, TablecryptError):
            return type(seen).__name__
        seen = seen.__cause__ or seen.__context__
    text = str(error)
    named = re.search(r"\b(ColumnKeyDeniedError|KeyNotFoundError|KmsAccessDeniedError)\b", text)
    return named[1] if named else type(error).__name__


def rendered(folder: Path) -> str:
    """The table, in Markdown."""
    head = [f"| who holds | {' | '.join(PRINCIPALS)} |", f"|---|{'---|' * len(PRINCIPALS)}"]
    lines = [f"| {operation} | {' | '.join(found[each] for each in PRINCIPALS)} |" for operation, found in access(folder).items()]
    return "\n".join([*head, *lines, ""])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        block = rendered(Path(made))
    PART.write(block)
