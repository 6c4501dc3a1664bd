"""A REST catalog that keeps views, and what anybody may put into it who can write to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyiceberg.view.metadata import SQLViewRepresentation, ViewRepresentation, ViewVersion

from tablecrypt_catalog import EncryptedRestCatalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "seen"
ID_COLUMN: Final = Schema(NestedField(1, "id", LongType()))


@dataclass(frozen=True)
class Views:
    """A catalog whose namespace has the table `orders` with ids 1 to 4, of which 1 and 3 are in the region eu."""

    spark: SparkSession
    catalog: EncryptedRestCatalog
    namespace: str
    properties: dict[str, str]

    @property
    def prefix(self) -> str:
        return f"{NAME}.{self.namespace}"

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement in which `here` stands for the catalog and namespace."""
        return [tuple(row) for row in self.spark.sql(statement.replace("here.", f"{self.prefix}.")).collect()]

    def make(self, name: str, sql: str, properties: dict[str, str] | None = None, dialect: str = "spark") -> str:
        """Put a view with a column `id` into the catalog, as anybody can who may write to it; return its name."""
        representation = ViewRepresentation(
            root=SQLViewRepresentation(type="sql", sql=sql.replace("here.", f"{self.prefix}."), dialect=dialect)
        )
        version = ViewVersion(schema_id=0, representations=[representation], default_namespace=(self.namespace,))
        self.catalog.create_view((self.namespace, name), ID_COLUMN, version, properties=properties or {})
        return f"{self.prefix}.{name}"
