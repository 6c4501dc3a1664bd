"""The command that writes the jar with which Spark's own servers and shells open encrypted tables."""

from __future__ import annotations

from pathlib import Path

import click

from tablecrypt.cli._framework import OPENS_NONE, DocumentedCommand, FilePath, check_replaced
from tablecrypt.cli._output import say
from tablecrypt.errors import MissingExtraError


@click.command(
    cls=DocumentedCommand,
    takes_no_catalog=OPENS_NONE,
    examples=[
        ("The jar", "tablecrypt spark-jar -o tablecrypt-spark.jar"),
        (
            "A catalog in spark-sql",
            "spark-sql --jars tablecrypt-spark.jar --conf spark.sql.catalog.prod=tablecrypt.jvm.SqlCatalog",
        ),
    ],
    needs="Java 17 or newer, and the extra spark. No JDK.",
)
@click.option("--output", "-o", required=True, type=FilePath(dir_okay=False), help="The jar. A file of that name is replaced.")
def spark_jar(output: Path) -> None:
    """Write the jar for spark-sql, Connect servers and clusters.

    It holds the Java classes of the catalog tablecrypt.jvm.SqlCatalog, compiled from the sources in this package, and runs on Spark 4.0 to
    4.3. Beside the driver it needs a Python with tablecrypt: the one that spark.sql.catalog.NAME.python or PYSPARK_PYTHON names. Executors
    need neither. A classic PySpark session needs no jar: tablecrypt.spark.catalog(spark, "prod") brings the classes.
    """
    check_replaced("--output", output, b"pk", "jar")
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise MissingExtraError.named("spark-jar needs the package pyspark", "spark") from error

    from tablecrypt.spark.shared.jar import write_spark_jar

    write_spark_jar(output)
    say(f"wrote {output}")
