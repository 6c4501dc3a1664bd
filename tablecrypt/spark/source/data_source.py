"""The data source itself, and its registration with a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource

from tablecrypt.spark.network import warn_of_open_network
from tablecrypt.spark.session import check_session
from tablecrypt.spark.source.reader import EncryptedReader
from tablecrypt.spark.source.session import SessionFacts
from tablecrypt.spark.source.stream_reader import EncryptedStreamReader
from tablecrypt.spark.source.table import SourceTable
from tablecrypt.spark.source.writer import EncryptedWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

FORMAT = "tablecrypt"


class EncryptedSource(DataSource):
    """An encrypted table by its options. `register` makes a subclass that knows the session."""

    facts: ClassVar[SessionFacts]

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._source = SourceTable.of(self.facts, options)

    @classmethod
    def name(cls) -> str:
        """The name that .format(...) and USING take."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns that the options select."""
        return self._source.spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        return EncryptedReader(self._source, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        return EncryptedWriter(self._source, schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream."""
        return EncryptedStreamReader(self._source, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a stream. ConfigurationError before Spark 4.1, which has no streams of Arrow batches to Python."""
        from tablecrypt.spark.source.stream_writer import EncryptedStreamWriter

        return EncryptedStreamWriter(self._source, schema, overwrite)


def register(spark: SparkSession, catalogs: Mapping[str, Mapping[str, str]] | None = None) -> None:
    """Make format("tablecrypt") known to a session; call it again when the session's settings or the catalogs change.

        tcs.register(spark, catalogs={"prod": {...}})
        spark.read.format("tablecrypt").option("columns", "id, note").load("prod.db.orders")
        df.write.format("tablecrypt").mode("append").save("prod.db.orders")
        spark.sql("CREATE TEMPORARY VIEW orders USING tablecrypt OPTIONS (table 'prod.db.orders')")

    Args:
        spark: a classic session of Spark 4.0 or newer.
        catalogs: for each catalog's name, properties for load_catalog beside those that PyIceberg's configuration has. They stay on this
            machine, in a file that only this user may read, until the program ends.

    The option `filter` rules out files and rows before Spark sees them; all options are in source/options.py. A session that takes Java
    classes refuses conditions on masks from now on. In others, masks of protected columns have to be asked for by the option `masked`.

    Raises:
        ConfigurationError: Spark is older than 4.0.
    """
    check_session(spark)
    warn_of_open_network(spark.conf.get)
    known = type("EncryptedSource", (EncryptedSource,), {"facts": SessionFacts.of(spark, catalogs), "__doc__": EncryptedSource.__doc__})
    _make_active(spark)
    spark.dataSource.register(known)


def _make_active(spark: SparkSession) -> None:
    """Make a classic session the active one, as each session does that creates a DataFrame.

    Spark refuses to register a source of whose name the active session has one, even if another session registers it.
    """
    if hasattr(spark, "_jsparkSession"):
        type(spark)._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
