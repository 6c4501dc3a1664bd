"""Who may do what with protected columns from Spark, found out by doing it; a table of docs/column-keys.md is made of it.

Run `python -m tests.support.column_access_in_spark` after a change; a test fails until it was run.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.catalog import load_catalog

import tablecrypt.spark as tcs
from tests.support import write_only_kms
from tests.support.column_access import ROWS, counted, described, own_error
from tests.support.pages import MadePart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART: Final = MadePart("column-keys.md", "access in Spark")
CATALOG: Final = "columnaccess"
_TABLE_KEY: Final = "orders"
_COLUMN_KEY: Final = "pii"
_WRITE_ONLY: Final = "the table's key, and the column's to wrap only"
_KEYS: Final = {
    "both keys": (_TABLE_KEY, _COLUMN_KEY),
    _WRITE_ONLY: (_TABLE_KEY, _COLUMN_KEY),
    "the table's key alone": (_TABLE_KEY,),
    "neither": ("other",),
}
PRINCIPALS: Final = tuple(_KEYS)


class _Program:
    """A session of one principal, and one table."""

    def __init__(self, session: SparkSession, properties: dict[str, str], table: str) -> None:
        self.session = session
        self.properties = properties
        self.table = table
        self.name = f"{CATALOG}.{table}"

    def read(self, columns: list[str] | None = None, row_filter: str | None = None, path: Any = None) -> DataFrame:
        return tcs.read_table(self.session, self.name, columns, row_filter, path=path, catalog_properties=self.properties)

    def source(self, **options: str) -> DataFrame:
        tcs.register(self.session, {CATALOG: self.properties})
        return self.session.read.format("tablecrypt").options(**options).load(self.name)

    def write(self, mode: Any, **options: Any) -> None:
        rows = self.session.createDataFrame([(2, "SSN-4", "d")], "id bigint, ssn string, note string")
        tcs.write_table(rows, self.name, mode, catalog_properties=self.properties, **options)

    def append(self) -> None:
        self.session.createDataFrame([(4, "SSN-4", "d")], "id bigint, ssn string, note string").writeTo(self.name).append()

    def delete(self, row_filter: str) -> None:
        tcs.delete_where(self.session, self.name, row_filter, catalog_properties=self.properties)

    def compact(self) -> None:
        tcs.compact(self.session, self.name, rewrite_all=True, catalog_properties=self.properties)

    def sql(self, statement: str) -> DataFrame:
        return self.session.sql(statement.format(t=self.name, name=self.table))


def _seen(rows: DataFrame) -> str:
    return described([row["ssn"] for row in rows.collect()])


def _counted(rows: DataFrame) -> str:
    return counted(len(rows.collect()))


def _done(change: Callable[[_Program], object]) -> Callable[[_Program], str]:
    def run(program: _Program) -> str:
        change(program)
        return "done"

    return run


def _statement(text: str) -> Callable[[_Program], str]:
    return _done(lambda program: program.sql(text).collect())


_MERGE: Final = "MERGE INTO {t} t USING (SELECT 2L AS id, 'SSN-4' AS ssn, 'd' AS note) s ON t.id = s.id WHEN MATCHED THEN"
OPERATIONS: Final[Mapping[str, Callable[[_Program], str]]] = {
    "`read_table`": lambda program: _seen(program.read()),
    '`read_table` of other columns, `path="jvm"`': lambda program: _counted(program.read(["id", "note"], path="jvm")),
    "`read_table(row_filter=)` by the column": lambda program: _counted(program.read(row_filter="ssn = 'SSN-2'")),
    "`read_table`, then `where` by the column": lambda program: _counted(program.read().where("ssn = 'SSN-2'")),
    '`format("tablecrypt")`': lambda program: _seen(program.source()),
    '`format("tablecrypt")`, then `where` by the column': lambda program: _counted(program.source().where("ssn = 'SSN-2'")),
    "SQL: `SELECT ssn`": lambda program: _seen(program.sql("SELECT ssn FROM {t}")),
    "SQL: `VERSION AS OF` a snapshot": lambda program: _seen(program.sql("SELECT ssn FROM {t} VERSION AS OF 'first'")),
    "SQL: `WHERE` another column": lambda program: _counted(program.sql("SELECT id FROM {t} WHERE note = 'b'")),
    "SQL: `WHERE` the column": lambda program: _counted(program.sql("SELECT id FROM {t} WHERE ssn = 'SSN-2'")),
    "SQL: `JOIN` on the column": lambda program: _counted(program.sql("SELECT a.id FROM {t} a JOIN {t} b ON a.ssn = b.ssn AND a.id = 2")),
    "`write_table`": _done(lambda program: program.write("append")),
    '`write_table(mode="merge")`': _done(lambda program: program.write("merge", keys=["id"])),
    "`delete_where` by another column": _done(lambda program: program.delete("id = 2")),
    "`delete_where` by the column": _done(lambda program: program.delete("ssn = 'SSN-2'")),
    "`compact`": _done(lambda program: program.compact()),
    "SQL: `INSERT` of values": _statement("INSERT INTO {t} VALUES (4L, 'SSN-4', 'd')"),
    "SQL: `INSERT` of other columns of the table": _statement("INSERT INTO {t} SELECT id + 3, 'SSN-4', note FROM {t}"),
    "SQL: `INSERT` of the column": _statement("INSERT INTO {t} SELECT id + 3, ssn, note FROM {t}"),
    "`writeTo(…).append()`": _done(lambda program: program.append()),
    "SQL: `MERGE` that writes rows": _statement(f"{_MERGE} UPDATE SET *"),
    "SQL: `MERGE` that only deletes": _statement(f"{_MERGE} DELETE"),
    "SQL: `UPDATE` another column": _statement("UPDATE {t} SET note = 'd' WHERE id = 2"),
    "SQL: `DELETE` by another column": _statement("DELETE FROM {t} WHERE id = 2"),
    "SQL: `DELETE` by the column": _statement("DELETE FROM {t} WHERE ssn = 'SSN-2'"),
    "SQL: `rewrite_data_files`": _statement(
        f"CALL {CATALOG}.system.rewrite_data_files(table => '{{name}}', options => map('rewrite-all', 'true'))"
    ),
    "SQL: `ADD COLUMN`": _statement("ALTER TABLE {t} ADD COLUMN more string"),
    "SQL: `RENAME COLUMN` of the column": _statement("ALTER TABLE {t} RENAME COLUMN ssn TO social"),
}
CHANGES_FROM: Final = list(OPERATIONS).index("`write_table`")
"""The operations before it change nothing, and are tried on one table."""


def access(spark: SparkSession, folder: Path) -> dict[str, dict[str, str]]:
    """Return what became of each operation, by operation and principal. Those that change something are tried on tables of their own."""
    keys = {name: base64.b64encode(secrets.token_bytes(32)).decode() for name in (_TABLE_KEY, _COLUMN_KEY, "other")}
    (folder / "warehouse").mkdir()
    properties = {principal: _properties(folder, number, keys, _KEYS[principal]) for number, principal in enumerate(PRINCIPALS)}
    properties[_WRITE_ONLY].pop("encryption.kms-type")
    properties[_WRITE_ONLY] |= {"encryption.kms-impl": write_only_kms.FILE_CLASS, write_only_kms.REFUSED: _COLUMN_KEY}
    owner = load_catalog(CATALOG, **properties[PRINCIPALS[0]])
    owner.create_namespace("db")
    found: dict[str, dict[str, str]] = {operation: {} for operation in OPERATIONS}
    for number, principal in enumerate(PRINCIPALS):
        session = spark.newSession()
        tcs.catalog(session, CATALOG, properties[principal])
        for at, (operation, run) in enumerate(OPERATIONS.items()):
            name = "db.read" if at < CHANGES_FROM else f"db.t{at}_{number}"
            if not owner.table_exists(name):
                _create(owner, name)
            found[operation][principal] = _outcome(run, _Program(session, properties[principal], name))
    return found


def _create(owner: Any, name: str) -> None:
    declared = {"encryption.key-id": _TABLE_KEY, "encryption.column-keys": f"{_COLUMN_KEY}: ssn"}
    table = owner.create_table(name, ROWS.schema, properties=declared)
    table.append(ROWS)
    table.manage_snapshots().create_tag(table.metadata.current_snapshot_id, "first").commit()


def _properties(folder: Path, number: int, keys: Mapping[str, str], own: tuple[str, ...]) -> dict[str, str]:
    file = folder / f"keys{number}.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"format": "tablecrypt-key-file", "version": 1, "keys": {name: {"1": keys[name]} for name in own}}))
    return {
        "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": (folder / "warehouse").as_uri(),
        "encryption.kms-type": "local",
        "kms.local.key-file": str(file),
    }


def _outcome(run: Callable[[_Program], str], program: _Program) -> str:
    try:
        return run(program)
    except Exception as error:  # noqa: BLE001  Spark raises errors of its own around ours
        return f"`{own_error(error)}`"


def rendered(spark: SparkSession, folder: Path) -> str:
    """The table, in Markdown."""
    head = [f"| who holds | {' | '.join(PRINCIPALS)} |", f"|---|{'---|' * len(PRINCIPALS)}"]
    lines = [f"| {operation} | {' | '.join(found[each] for each in PRINCIPALS)} |" for operation, found in access(spark, folder).items()]
    return "\n".join([*head, *lines, ""])


def main() -> None:
    """Write the table into its page."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as made:
        block = rendered(session, Path(made))
    session.stop()
    PART.write(block)


if __name__ == "__main__":
    main()
