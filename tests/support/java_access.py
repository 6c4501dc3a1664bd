"""What Iceberg Java does with a table that has protected columns, statement by statement; the table of docs/column-keys.md is made of it.

The test that runs the statements compares what it found with the page. Run `python -m tests.support.java_access` to write the page again.

The table `t` has two protected columns: of `ssn` the files hold no mask, of `email` they hold redacted text.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa

from tablecrypt import maintenance
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import CREDENTIALS, AwsServer
from tests.support.java import JavaError, JavaOracle
from tests.support.pages import MadePart
from tests.support.tables import encrypted_sql_catalog

PART: Final = MadePart("column-keys.md", "java")

DATA: Final = [
    {
        "id": number,
        "region": ("eu", "us", "ap")[number % 3],
        "amount": None if number % 7 == 3 else number / 4,
        "ssn": None if number % 10 == 9 else f"SSN-{number:09d}",
        "email": f"p{number}@example.org",
        "note": f"note {number % 50}",
    }
    for number in range(400)
]
TYPES: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("region", pa.string()),
        ("amount", pa.float64()),
        ("ssn", pa.string()),
        ("email", pa.string()),
        ("note", pa.string()),
    ]
)
SMALL: Final = {5: "a", 305: "b", 9999: "c"}

RIGHT: Final = "the right rows"
NAMED: Final = "fails, naming the column"
MASKS: Final = "the masks"
ON_MASKS: Final = "the rows whose masks match"
NO_STATISTICS: Final = "none"
DONE: Final = "done"
REFUSED: Final = "refused: no ORC encryption"
EXPOSED: Final = "done, under the table's key"


def _of(column: str, condition: str = "True") -> list[tuple[Any, ...]]:
    """The rows of Python's expressions of columns, where a condition holds."""
    chosen = compile(f"({column},)", "columns", "eval"), compile(condition, "condition", "eval")
    return [eval(chosen[0], {}, row) for row in DATA if eval(chosen[1], {}, row)]


def _sums() -> list[tuple[Any, ...]]:
    return [(region, sum(row["amount"] or 0 for row in DATA if row["region"] == region)) for region in ("eu", "us", "ap")]


QUERIES: Final[dict[str, list[tuple[Any, ...]]]] = {
    "SELECT id, region, amount FROM t": _of("id, region, amount"),
    "SELECT note FROM t": _of("note"),
    "SELECT id FROM t WHERE id > 300": _of("id", "id > 300"),
    "SELECT id FROM t WHERE id < 100": _of("id", "id < 100"),
    "SELECT id FROM t WHERE region = 'eu'": _of("id", "region == 'eu'"),
    "SELECT id FROM t WHERE amount > 50": _of("id", "(amount or 0) > 50"),
    "SELECT id FROM t WHERE amount IS NULL": _of("id", "amount is None"),
    "SELECT id FROM t WHERE upper(region) = 'EU'": _of("id", "region == 'eu'"),
    "SELECT id FROM t WHERE id + 0 > 300": _of("id", "id > 300"),
    "SELECT count(*) FROM t": [(400,)],
    "SELECT count(*) FROM t WHERE id > 300": [(99,)],
    "SELECT min(id), max(id) FROM t": [(0, 399)],
    "SELECT region, sum(amount) FROM t GROUP BY region": _sums(),
    "SELECT a.id, b.v FROM t a JOIN small b ON a.id = b.id": [(5, "a"), (305, "b")],
    "SELECT count(*), count(DISTINCT _row_id), max(_pos) FROM t": [(400, 400, 199)],
    "SELECT id FROM t ORDER BY id LIMIT 3": [(0,), (1,), (2,)],
    "SELECT count(*), max(id) FROM t VERSION AS OF $first": [(200, 199)],
    "SELECT ssn FROM t": _of("ssn"),
    "SELECT * FROM t": _of("id, region, amount, ssn, email, note"),
    "SELECT id FROM t WHERE ssn = 'SSN-000000005'": [(5,)],
    "SELECT id FROM t WHERE ssn IS NULL": _of("id", "ssn is None"),
    "SELECT id FROM t WHERE ssn IS NOT NULL": _of("id", "ssn is not None"),
    "SELECT count(ssn) FROM t": [(360,)],
    "SELECT min(ssn), max(ssn) FROM t": [("SSN-000000000", "SSN-000000398")],
    "SELECT email FROM t": _of("email"),
    "SELECT id FROM t WHERE email = 'x9@xxxxxxx.xxx'": _of("id", "id < 10"),
    "SELECT readable_metrics.ssn.upper_bound AS ssn, readable_metrics.email.upper_bound AS email FROM t.files": [
        (None, None),
        (None, None),
    ],
}
"""Each statement, and what it returns to somebody who sees the values; the last but one, by masks, and the last to everybody."""

_ROWS: Final = "VALUES (2000, 'eu', 1.0, 'SSN-JAVA', 'j@java', 'n')"
_ROW: Final = "(id, region, amount, ssn, email, note) VALUES (b.id, 'eu', 1.0, 'SSN-JAVA', 'j@java', 'n')"
_EXPOSING: Final = f"INSERT INTO t WITH ('write-format' = 'parquet') {_ROWS}"
_MERGE: Final = "MERGE INTO t a USING small b ON a.id = b.id WHEN MATCHED THEN"
_Kept = Callable[[Any], bool]
CHANGES: Final[dict[str, _Kept]] = {
    "DELETE FROM t WHERE id BETWEEN 100 AND 110": lambda row: not 100 <= row <= 110,
    "DELETE FROM t WHERE region = 'eu'": lambda row: row % 3 != 0,
    "DELETE FROM t WHERE id + 0 = 5": lambda row: row != 5,
    f"{_MERGE} DELETE": lambda row: row not in SMALL,
    "DELETE FROM t": lambda _: False,
    "DELETE FROM t WHERE ssn = 'SSN-000000005'": lambda _: True,
    f"INSERT INTO t {_ROWS}": lambda _: True,
    f"INSERT OVERWRITE t {_ROWS}": lambda _: True,
    "UPDATE t SET amount = 7 WHERE id = 5": lambda _: True,
    "UPDATE t SET ssn = 'SSN-JAVA'": lambda _: True,
    f"{_MERGE} UPDATE SET amount = 7 WHEN NOT MATCHED THEN INSERT {_ROW}": lambda _: True,
    "CALL h.system.rewrite_data_files(table => '$name', options => map('rewrite-all', 'true'))": lambda _: True,
    "CREATE TABLE copy USING iceberg AS SELECT * FROM t": lambda _: True,
    "ALTER TABLE t RENAME COLUMN ssn TO social": lambda _: True,
    "ALTER TABLE t ADD COLUMN extra int": lambda _: True,
    "ALTER TABLE t DROP COLUMN ssn": lambda _: True,
    "CALL h.system.rewrite_manifests('$name')": lambda _: True,
    "CALL h.system.rewrite_position_delete_files(table => '$name', options => map('rewrite-all', 'true'))": lambda _: True,
    _EXPOSING: lambda _: True,
    "CALL h.system.expire_snapshots(table => '$name', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)": lambda _: True,
}
"""Each statement, and which of the rows there are after it, by id. The last deletes files that the others read."""


def rendered(folder: Path, aws: AwsServer, java: JavaOracle) -> str:
    """The table, in Markdown."""
    lines = [f"| `{statement}` | {outcome} |" for statement, outcome in java_access(folder, aws, java).items()]
    return "\n".join(["| statement | Java |", "|---|---|", *lines, ""])


def java_access(folder: Path, aws: AwsServer, java: JavaOracle) -> dict[str, str]:
    """Run every statement, and return what became of each; each change on a table of its own, which begins as the same two files."""
    catalog = encrypted_sql_catalog(folder, aws)
    properties = {
        "encryption.key-id": aws.kms_key_id("alias/orders"),
        "encryption.column-keys": f"{aws.kms_key_id('alias/people')}: ssn, email",
        "encryption.column-mask.email": "redact",
    }
    table = cast("EncryptedTable", catalog.create_table("db.access", TYPES, properties=properties))
    for half in (DATA[:200], DATA[200:]):
        table.append(pa.Table.from_pylist(half, schema=TYPES))
    rows = ", ".join(f"({number}, '{text}')" for number, text in SMALL.items())
    java.register("kept.access", table.metadata_location)
    java.sql("CREATE TABLE h.kept.small (id bigint, v string) USING iceberg")
    java.sql(f"INSERT INTO h.kept.small VALUES {rows}")
    first = str(table.snapshots()[0].snapshot_id)
    outcomes = {query: _queried(java, _named(query, "kept.access", first), expected) for query, expected in QUERIES.items()}
    for number, (change, is_kept) in enumerate(CHANGES.items()):
        name = f"kept.access{number}"
        java.register(name, table.metadata_location)
        outcomes[change] = _changed(java, name, change)
        added = [2000] if change == _EXPOSING else []
        left = sorted(row for (row,) in _rows(java, f"SELECT id FROM h.{name} WHERE id >= 0"))
        assert left == [row["id"] for row in DATA if is_kept(row["id"])] + added, change
        if change == _EXPOSING:
            outcomes[change] = _exposed(catalog, java.metadata_location(name))
    return outcomes


def _named(statement: str, name: str, first: str = "") -> str:
    statement = re.sub(r"\bt\b(?!\s*=>)", f"h.{name}", statement).replace("$name", name).replace("$first", first)
    return re.sub(r"\b(small|copy)\b", r"h.kept.\1", statement)


def _rows(java: JavaOracle, query: str) -> list[tuple[Any, ...]]:
    found = java.sql(query)
    assert found is not None, query
    return [tuple(row.values()) for row in found.to_pylist()]


def _queried(java: JavaOracle, query: str, expected: list[tuple[Any, ...]]) -> str:
    try:
        found = _rows(java, query)
    except JavaError as error:
        return _failure(error)
    if any("@example.org" in str(value) or str(value).startswith("SSN-") for row in found for value in row):
        raise AssertionError(f"Java sees values: {query}")
    if ".files" in query:
        return NO_STATISTICS if found == expected else f"{found}"
    if "WHERE email" in query:
        return ON_MASKS if _ordered(found) == _ordered(expected) else f"{len(found)} rows"
    if _ordered(found) == _ordered(expected):
        return RIGHT
    return MASKS if len(found) == len(expected) and all("@xxxxxxx.xxx" in str(row) for row in found) else f"wrong: {found[:3]}"


def _ordered(rows: list[tuple[Any, ...]]) -> list[str]:
    return sorted(map(repr, rows))


def _changed(java: JavaOracle, name: str, change: str) -> str:
    before = java.metadata_location(name)
    try:
        java.sql(_named(change, name))
    except JavaError as error:
        assert java.metadata_location(name) == before, change
        return _failure(error)
    return DONE


def _failure(error: JavaError) -> str:
    if "Native ORC encryption is not supported" in str(error):
        return REFUSED
    named = re.search(r"could not read page in col \[(\w+)\]", str(error))
    return NAMED if named and named[1] in ("ssn", "email") else f"{error}"[:200]


def _exposed(catalog: Any, location: str) -> str:
    table = cast("EncryptedTable", catalog.register_table("db.exposed", location))
    found = {finding.kind for finding in maintenance.audit(table).tables[0].findings}
    return EXPOSED if maintenance.FindingKind.COLUMN_EXPOSED in found else "done, and the audit does not say so"


def main() -> None:
    """Write the table into its page."""
    os.environ.update(CREDENTIALS)
    aws = AwsServer()
    try:
        with tempfile.TemporaryDirectory() as made, JavaOracle(Path(made) / "java", aws.endpoint) as java:
            block = rendered(Path(made), aws, java)
    finally:
        aws.stop()
    PART.write(block)


if __name__ == "__main__":
    main()
