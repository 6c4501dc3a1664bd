"""Where the pins of a catalog lie: in rows of its own database, or in a file of its clients. And somebody who writes past all of them.

"sqlite", "postgres"      rows of the database
"any metastore", "sql"    a file: of a catalog class that was made to encrypt, and of one with pins of its own, which somebody deletes
"""

from __future__ import annotations

import json
from typing import Any, Final, cast

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import create_engine, text

from tablecrypt_catalog import EncryptedSqlCatalog, encrypted
from tests.support.tables import encrypted_sql_catalog

IN_ROWS: Final = ("sqlite", "postgres")
IN_A_FILE: Final = ("any metastore", "sql")


class PinPlace:
    """A catalog in `unwatched_warehouse` whose pins lie in the place of this name."""

    def __init__(self, name: str, request: pytest.FixtureRequest) -> None:
        self.name, self.in_a_file = name, name in IN_A_FILE
        self._folder, self._aws = request.getfixturevalue("unwatched_warehouse"), request.getfixturevalue("aws")
        self.pin_file = request.getfixturevalue("tmp_path") / "pins.json"
        new_database = request.getfixturevalue("postgres").new_database if name == "postgres" else None
        self.uri = new_database() if new_database else f"sqlite:///{self._folder}/catalog.db"

    def new_catalog(self, **properties: str) -> EncryptedSqlCatalog:
        """A client of the catalog."""
        given = {"uri": self.uri, **({"encryption.pins": str(self.pin_file)} if self.in_a_file else {}), **properties}
        if self.name != "any metastore":
            return encrypted_sql_catalog(self._folder, self._aws, given)
        given = {"warehouse": f"file://{self._folder}/warehouse", **self._aws.kms_properties, **given}
        catalog = cast("EncryptedSqlCatalog", encrypted(SqlCatalog)("prod", **given))
        catalog.create_namespace_if_not_exists("db")
        return catalog

    def plain_client(self) -> SqlCatalog:
        """A client of the same database that knows neither encryption nor pins."""
        return SqlCatalog("prod", uri=self.uri, warehouse=f"file://{self._folder}/warehouse")

    def execute(self, statement: str, **values: Any) -> list[dict[str, Any]]:
        """Run a statement in the database."""
        engine = create_engine(self.uri)
        with engine.begin() as connection:
            result = connection.execute(text(statement), values)
            rows = [dict(row) for row in result.mappings()] if result.returns_rows else []
        engine.dispose()
        return rows

    def point_to(self, location: str) -> None:
        """Let the catalog answer with another metadata file, as somebody can who writes the whole database."""
        self.execute("UPDATE iceberg_tables SET metadata_location = :location", location=location)
        self.lose_rows()

    def lose_rows(self) -> None:
        """Delete the pins in the database, as who writes it can, where others have to hold."""
        if self.name == "sql":
            self.execute("DELETE FROM tablecrypt_pins")

    def forget(self) -> None:
        """Lose every pin."""
        self.pin_file.unlink() if self.in_a_file else self.execute("DELETE FROM tablecrypt_pins")

    def pins(self) -> dict[str, dict[str, Any]]:
        """What is pinned, by the tables' names: columns of rows, which are fields of the file with underscores."""
        if not self.in_a_file:
            rows = self.execute("SELECT * FROM tablecrypt_pins")
            return {f"{row['table_namespace']}.{row['table_name']}": row for row in rows}
        entries = json.loads(self.pin_file.read_text())["pins"] if self.pin_file.exists() else []
        return {".".join(entry["identifier"]): {name.replace("-", "_"): value for name, value in entry.items()} for entry in entries}
