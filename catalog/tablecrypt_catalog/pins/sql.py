"""The pins of a SQL catalog: a table `tablecrypt_pins` beside `iceberg_tables`, with the same primary key, changed in the same transaction.

    catalog_name, table_namespace, table_name     as in iceberg_tables
    table_uuid, key_id, data_key_length           of the table
    metadata_location, metadata_hash              the newest metadata, and SHA-256 (hexadecimal) of its uncompressed JSON
    last_sequence_number                          of that metadata
    kek_hashes                                    those of `TableVersion`, sorted, with a blank between them
    heads                                         JSON: branch or tag → [snapshot id, sequence number]; null: not known
    retired_keks                                  those of `TableVersion`, as JSON; null: none
    folders                                       those of `TableVersion`, as JSON; null: not known
    protected_columns                             see protected_columns.py; null: not known

The last four columns came later; a database that lacks them gets them. A client of before leaves them as they are.
A pin is as trustworthy as the database: it protects against those who can write to the storage and not to the database, and shows a row of
iceberg_tables that was changed by other means.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import TypeAdapter
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.typedef import Identifier
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Engine,
    Integer,
    MetaData,
    PoolResetState,
    RowMapping,
    String,
    Table,
    Text,
    and_,
    bindparam,
    delete,
    insert,
    inspect,
    not_,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateTable

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt_catalog.pins.protected_columns import columns_as_text, columns_from_text, from_text
from tablecrypt_catalog.pins.record import FOLDERS, Head, TableVersion

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPIConnection

ROWS: Final = cast("Table", IcebergTables.__table__)
"""The table iceberg_tables, without what SQLAlchemy does for objects of its rows."""
_ROW_KEY: Final = {"catalog_name": "of_catalog", "table_namespace": "of_namespace", "table_name": "of_table"}
"""The primary key, and the parameters that stand for it. An update of the table takes its own columns' names for what is to be set."""


def row_names(identifier: str | Identifier) -> tuple[str, str]:
    """Return a table's namespace, as the database holds it, and its name."""
    return Catalog.namespace_to_string(Catalog.namespace_from(identifier)), Catalog.table_name_from(identifier)


def has_key(table: Table) -> ColumnElement[bool]:
    """Return the condition that finds a table's row in iceberg_tables, or in a table of the same key, by the parameters of `key_of`."""
    return and_(*(table.c[column] == bindparam(parameter) for column, parameter in _ROW_KEY.items()))


def key_of(catalog_name: str, names: tuple[str, str]) -> dict[str, str]:
    """Return the parameters that find the rows of a table, given as namespace and name."""
    return dict(zip(_ROW_KEY.values(), (catalog_name, *names), strict=True))


PINS: Final = Table(
    "tablecrypt_pins",
    MetaData(),
    Column("catalog_name", String(255), primary_key=True),
    Column("table_namespace", String(255), primary_key=True),
    Column("table_name", String(255), primary_key=True),
    Column("table_uuid", String(36), nullable=False),
    Column("key_id", String(1000), nullable=False),
    Column("data_key_length", Integer, nullable=False),
    Column("metadata_location", String(1000), nullable=False),
    Column("metadata_hash", String(64), nullable=True),
    Column("last_sequence_number", BigInteger, nullable=False),
    Column("kek_hashes", Text, nullable=False),
    Column("heads", Text, nullable=True),
    Column("retired_keks", Text, nullable=True),
    Column("folders", Text, nullable=True),
    Column("protected_columns", Text, nullable=True),
)


_WHERE: Final = f"a pin in the table {PINS.name}"
_HEADS: Final = TypeAdapter(dict[str, tuple[int, int]])
_RETIRED: Final = TypeAdapter(frozenset[str])


def create_pins_table(engine: Engine, allowed: bool = True) -> None:
    """Create the table, or the columns that it lacks, where they are not there.

    Args:
        engine: the catalog's database.
        allowed: whether the catalog may create tables.

    Raises:
        ConfigurationError: something is not there, and may not or cannot be created.
    """
    problem: DBAPIError | None = None
    for statement in _missing(engine) if allowed else []:
        try:
            with engine.begin() as connection:
                connection.execute(text(statement))
        except DBAPIError as error:
            # Another client may have been faster: what is still missing is looked up below.
            problem = error

    # Asked again, since another client may have created it: without the columns a pin lacks what its rules compare.
    lacking = _missing(engine)
    if lacking:
        raise ConfigurationError(
            f"the catalog's database lacks the table {PINS.name}, which pins encrypted tables, or columns of it, and this client did not "
            f"create it. Create it with: {'; '.join(lacking)}"
        ) from problem


def _missing(engine: Engine) -> list[str]:
    """The statements that make what is not there."""
    found = inspect(engine)
    if not found.has_table(PINS.name):
        return [" ".join(str(CreateTable(PINS).compile(engine)).split())]

    present = {column["name"] for column in found.get_columns(PINS.name)}
    return [
        f"ALTER TABLE {PINS.name} ADD COLUMN {column.name} {column.type.compile(engine.dialect)}"
        for column in PINS.columns
        if column.name not in present
    ]


def drop_pins_table(engine: Engine) -> None:
    """Drop the table if it is there."""
    PINS.drop(engine, checkfirst=True)


def pin_of_row(row: RowMapping) -> TableVersion | None:
    """Return the pin in a row of a query for `PINS.c`; None where an outer join found none."""
    if row["key_id"] is None:
        return None

    return TableVersion(
        table_uuid=row["table_uuid"],
        table_key_id=row["key_id"],
        data_key_length=_number(row["data_key_length"]),
        metadata_location=row["pinned_location"],
        metadata_hash=row["metadata_hash"],
        last_sequence_number=_number(row["last_sequence_number"]),
        kek_hashes=frozenset(row["kek_hashes"].split()),
        heads={name: Head(*head) for name, head in from_text(_HEADS, row["heads"], _WHERE, {}).items()},
        retired_keks=from_text(_RETIRED, row["retired_keks"], _WHERE, frozenset()),
        folders=from_text(FOLDERS, row["folders"], _WHERE, ()),
        columns=columns_from_text(row["protected_columns"], _WHERE),
    )


PIN_COLUMNS: Final = (
    *(PINS.c[name] for name in ("table_uuid", "key_id", "data_key_length", "metadata_hash", "last_sequence_number")),
    *(PINS.c[name] for name in ("kek_hashes", "heads", "retired_keks", "folders", "protected_columns")),
    PINS.c.metadata_location.label("pinned_location"),
)
"""What to select for `pin_of_row`, beside the columns of iceberg_tables."""
_IS_PIN: Final = has_key(PINS)
_FINDING: Final = select(*PIN_COLUMNS).where(_IS_PIN)
_MOVING: Final = update(PINS).where(_IS_PIN, PINS.c.metadata_location == bindparam("before"))
_NAMING: Final = select(PINS.c.table_namespace, PINS.c.table_name).where(
    PINS.c.catalog_name == bindparam("of_catalog"), PINS.c.table_uuid == bindparam("uuid"), not_(_IS_PIN)
)
WITH_PINS: Final = ROWS.outerjoin(PINS, and_(*(PINS.c[name] == ROWS.c[name] for name in ("catalog_name", "table_namespace", "table_name"))))
"""The rows of iceberg_tables, each with its pin, or with nulls where it has none."""
_ENTERED: Final = (
    select(ROWS.c.catalog_name, ROWS.c.table_namespace, ROWS.c.table_name)
    .select_from(WITH_PINS)
    .where(not_(has_key(ROWS)), or_(PINS.c.table_uuid == bindparam("uuid"), ROWS.c.metadata_location == bindparam("location")))
)


def _number(stored: object) -> int:
    """SQLite keeps text in a column of integers, if a client puts it there."""
    if not isinstance(stored, int):
        raise FormatError(f"{_WHERE} cannot be read: {stored!r} is not a whole number")
    return stored


def find_pin(session: Session, catalog_name: str, names: tuple[str, str]) -> TableVersion | None:
    """Return the pin of a table; None for one that has none."""
    row = session.execute(_FINDING, key_of(catalog_name, names)).mappings().first()
    return None if row is None else pin_of_row(row)


def find_name(session: Session, catalog_name: str, names: tuple[str, str], table_uuid: str) -> str | None:
    """Return another name under which a table is pinned; None where there is none."""
    found = session.execute(_NAMING, {**key_of(catalog_name, names), "uuid": table_uuid}).first()
    return None if found is None else ".".join(found)


def other_entries(
    session: Session, catalog_name: str, names: tuple[str, str], table_uuid: str, metadata_location: str
) -> list[tuple[str, str, str]]:
    """Return the entries of the whole database, besides its own, that a table has: catalog, namespace and name of each.

    Those are found that a client of ours has pinned as this table, and those that lead to the same metadata file.
    """
    parameters = {**key_of(catalog_name, names), "uuid": table_uuid, "location": metadata_location}
    return sorted((row[0], row[1], row[2]) for row in session.execute(_ENTERED, parameters))


def write_pin(session: Session, catalog_name: str, names: tuple[str, str], before: TableVersion | None, pin: TableVersion) -> bool:
    """Compare and swap a table's pin; return whether it was as before.

    Raises:
        sqlalchemy.exc.IntegrityError: there was none before, but there is one now.
    """
    if before is None:
        key = {"catalog_name": catalog_name, "table_namespace": names[0], "table_name": names[1]}
        session.execute(insert(PINS).values(**key, **_values(pin)))
        return True
    parameters = {**key_of(catalog_name, names), "before": before.metadata_location, **_values(pin)}
    return bool(session.execute(_MOVING, parameters).rowcount)  # type: ignore[attr-defined]


def delete_pin(session: Session, catalog_name: str, names: tuple[str, str]) -> None:
    """Delete the pin of a table, if there is one."""
    session.execute(delete(PINS).where(_IS_PIN), key_of(catalog_name, names))


def rename_pin(session: Session, catalog_name: str, old: tuple[str, str], new: tuple[str, str]) -> None:
    """Move the pin of a table to its new name."""
    session.execute(update(PINS).where(_IS_PIN).values(table_namespace=new[0], table_name=new[1]), key_of(catalog_name, old))


def _values(pin: TableVersion) -> dict[str, Any]:
    return {
        "table_uuid": pin.table_uuid,
        "key_id": pin.table_key_id,
        "data_key_length": pin.data_key_length,
        "metadata_location": pin.metadata_location,
        "metadata_hash": pin.metadata_hash,
        "last_sequence_number": pin.last_sequence_number,
        "kek_hashes": " ".join(sorted(pin.kek_hashes)),
        "heads": json.dumps(pin.heads),
        "retired_keks": json.dumps(sorted(pin.retired_keks)),
        "folders": json.dumps(pin.folders),
        "protected_columns": columns_as_text(pin.columns),
    }


def end_transaction(connection: DBAPIConnection, _record: object, state: PoolResetState) -> None:
    """End what is left of a transaction on a connection that goes back to its pool.

    SQLAlchemy takes it for ended whose COMMIT failed, and SQLite does not end it then, as where another process reads for too long: the
    next user of the connection would see, and pin, what nobody else ever will.
    """
    if state.transaction_was_reset:
        connection.rollback()
