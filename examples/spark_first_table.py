"""An encrypted table in Spark SQL, from CREATE TABLE to MERGE, and then a look at it from the outside.

Copy `use_a_table`. Everything below it starts what the function needs (moto simulates AWS KMS inside this process; a Spark session has two
cores) and shows the files in ./demo/spark, which every run makes again.

Run: make demo-spark   (needs Java 17 or newer)
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
from moto.server import ThreadedMotoServer
from pyspark.sql import DataFrame, SparkSession

import tablecrypt.spark as tcs
from tablecrypt import load_catalog
from tablecrypt.errors import ConfigurationError

DEMO = Path("demo/spark").absolute()
CANARY = "c4nary-plaintext-must-not-appear"
REGION = "us-east-1"
ROWS = 200_000


def use_a_table(spark: SparkSession, orders: DataFrame, kms_endpoint: str) -> None:
    properties = {  # or put them into .pyiceberg.yaml, under the catalog's name
        "type": "tablecrypt",
        "uri": f"sqlite:///{DEMO}/catalog.db",
        "warehouse": f"{DEMO}/warehouse",
        "encryption.required": "true",
        "encryption.default-key-id": "alias/orders",
        "encryption.kms-type": "aws",
        "kms.endpoint": kms_endpoint,  # without it: AWS's own
        "client.region": REGION,
    }
    load_catalog("prod", **properties).create_namespace("db")
    tcs.catalog(spark, "prod", properties)

    spark.sql("CREATE TABLE prod.db.orders (id bigint, region string, day date, amount decimal(9, 2), note string) PARTITIONED BY (region)")
    orders.writeTo("prod.db.orders").append()
    spark.sql("ALTER TABLE prod.db.orders CREATE TAG received")

    spark.sql("DELETE FROM prod.db.orders WHERE region = 'us' AND amount < 5000")
    spark.sql("UPDATE prod.db.orders SET amount = amount + 1 WHERE id % 1000 = 0")
    spark.sql("""
        MERGE INTO prod.db.orders t USING (SELECT id * 100000 AS id FROM range(4)) late ON t.id = late.id
        WHEN MATCHED THEN UPDATE SET day = date'2026-12-31'
        WHEN NOT MATCHED THEN INSERT (id, region) VALUES (late.id, 'late')""")

    spark.sql("SELECT region, count(*) AS orders, max(amount) FROM prod.db.orders GROUP BY region ORDER BY region").show()
    spark.sql("SELECT count(*) AS received FROM prod.db.orders VERSION AS OF 'received'").show()
    spark.sql("SELECT operation, summary['total-records'] AS rows FROM prod.db.orders.snapshots ORDER BY committed_at").show()
    spark.sql("CALL prod.system.rotate_kek('db.orders')").show()


# ── Copy the part above. The rest starts a KMS and Spark, and shows what happened. ───────────────────────────────────────────────────


@contextmanager
def running_kms() -> Iterator[str]:
    """A KMS on a free port, with one master key. The credentials are moto's: it accepts any."""
    os.environ.pop("AWS_PROFILE", None)
    os.environ.update(AWS_ACCESS_KEY_ID="demo", AWS_SECRET_ACCESS_KEY="demo", AWS_REGION=REGION, AWS_DEFAULT_REGION=REGION)
    os.environ.update(AWS_CONFIG_FILE=os.devnull, AWS_SHARED_CREDENTIALS_FILE=os.devnull, AWS_EC2_METADATA_DISABLED="true")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    kms = boto3.client("kms", endpoint_url=endpoint, region_name=REGION)
    kms.create_alias(AliasName="alias/orders", TargetKeyId=kms.create_key()["KeyMetadata"]["KeyId"])
    try:
        yield endpoint
    finally:
        server.stop()


@contextmanager
def running_spark() -> Iterator[SparkSession]:
    """A local session whose workers run this Python, with the modules that it finds."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    builder = SparkSession.builder.master("local[2]").appName("tablecrypt-demo")
    for name, value in {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def sample_orders(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 4).selectExpr(
        "id",
        "element_at(array('eu', 'us', 'asia'), cast(id % 3 as int) + 1) AS region",
        "date_add(date'2026-01-01', cast(id % 365 as int)) AS day",
        "cast(id % 1000000 / 20 AS decimal(9, 2)) AS amount",
        f"'{CANARY}' AS note",
    )


def show_files() -> None:
    print(f"\nWhat lies in {DEMO}:")
    for path in sorted(DEMO.rglob("*")):
        if not path.is_file():
            continue
        head = path.read_bytes()[:4]
        print(f"  {path.stat().st_size:>9}  {head!r:<9} {path.relative_to(DEMO)}")
    print("  PARE: encrypted Parquet. AGS1: an encrypted manifest or manifest list. The rest is the catalog and the table's metadata.")


def count_canaries() -> int:
    return sum(path.read_bytes().count(CANARY.encode()) for path in DEMO.rglob("*") if path.is_file())


def main() -> None:
    try:
        tcs.check_java()
    except ConfigurationError as error:
        sys.exit(str(error))
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir(parents=True)
    with running_kms() as kms_endpoint, running_spark() as spark:
        use_a_table(spark, sample_orders(spark), kms_endpoint)
    show_files()
    found = count_canaries()
    print(f"\n{CANARY!r}, which is in every row, is in these files {found} times")
    if found:
        sys.exit("plaintext was found where only ciphertext may be")


if __name__ == "__main__":
    main()
