"""Make tests/vectors/java: tables in which Iceberg Java shows one thing each. Run from the repository's root, with Java 17:

    python -m tests.vectors.make_java_vectors            # all tables, into tests/vectors/java (what was there is replaced)
    python -m tests.vectors.make_java_vectors FOLDER     # elsewhere, to look at

| table               | shows                                                                                                        |
|---------------------|--------------------------------------------------------------------------------------------------------------|
| avro_data           | Avro data files, every one wholly AGS1; a deletion vector over Avro; a copy-on-write update                    |
| position_deletes    | Parquet position delete files in a table whose lists and manifests are all v3; then a deletion vector over them |
| upgraded            | the same with its v2 past: v2 lists and manifests, encrypted, below a v3 table                                 |
| equality_deletes    | Parquet equality delete files                                                                                |
| all_types           | every type that Spark holds in v3: extremes, nulls, empty collections, nested twice                            |
| partitioned         | every partition transform; null partition values; a copy-on-write delete                                      |
| key_length_24, _32  | encryption.data-key-length; a deletion vector                                                                 |
| evolved             | columns added, renamed, moved, dropped, widened, one name used twice; the spec changed; a branch and a tag      |

How Java is brought to write position delete files: it refuses them in v3 ("Must use DVs for position deletes in V3"), and it refuses to
create a v2 table with encryption.key-id; but it opens one that exists. So an empty v3 table is created, its metadata.json is registered
again with format version 2, and Java writes, encrypted, what it writes in v2. Then ALTER TABLE makes it a v3 table, as it does for any
v2 table. No byte but the format version (and the next-row-id that v2 lacks) of that first, empty metadata.json is ours.

Each table lies in the bucket java-vectors and is encrypted under alias/orders of golden/kms_keys.json. Keys, file names and times differ in
every run.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.aws import CREDENTIALS, REGION, AwsServer
from tests.support.java import JavaOracle
from tests.support.plaintext import CANARY
from tests.support.sample_rows import EXTREME_COLUMNS, MANY_COLUMNS, PARTITION_COLUMNS, extreme_rows, many_rows, partition_rows
from tests.support.vectors import JAVA

BUCKET: Final = "java-vectors"
NAMESPACE: Final = "db"


@dataclass
class Workshop:
    """Java, the S3 it writes to, and what was made so far."""

    java: JavaOracle
    aws: AwsServer
    branches: dict[str, list[str]] = field(default_factory=dict)
    tags: dict[str, list[str]] = field(default_factory=dict)

    def create(self, name: str, columns: str, partitioned_by: str = "", properties: Mapping[str, str] = MappingProxyType({})) -> str:
        """Create an encrypted table; its identifier."""
        options = {"format-version": "3", "encryption.key-id": "alias/orders", **properties}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
        partitioning = f"PARTITIONED BY ({partitioned_by})" if partitioned_by else ""
        location = f"s3://{BUCKET}/{NAMESPACE}/{name}"
        self.sql(
            f"CREATE TABLE h.{NAMESPACE}.{name} ({columns}) USING iceberg {partitioning} LOCATION '{location}' TBLPROPERTIES ({listed})"
        )
        return f"{NAMESPACE}.{name}"

    def sql(self, statement: str) -> None:
        self.java.sql(statement)

    def append(self, identifier: str, **columns: Any) -> None:
        self.java.append(identifier, pa.table(columns))

    def reopen_as_v2(self, identifier: str) -> None:
        """Replace an empty v3 table by one of format version 2 that is the same in all else."""
        prefix = f"s3://{BUCKET}/"
        location = self.java.metadata_location(identifier)
        body = self.aws.s3.get_object(Bucket=BUCKET, Key=location.removeprefix(prefix))["Body"].read()
        metadata = json.loads(body) | {"format-version": 2}
        del metadata["next-row-id"]
        self.java.unregister(identifier)
        self.aws.s3.put_object(Bucket=BUCKET, Key=location.removeprefix(prefix), Body=json.dumps(metadata).encode())
        self.java.register(identifier, location)


def avro_data(shop: Workshop) -> None:
    table = shop.create(
        "avro_data",
        MANY_COLUMNS,
        properties={"write.format.default": "avro", "write.delete.mode": "merge-on-read", "write.update.mode": "copy-on-write"},
    )
    for first in (0, 40):
        shop.java.append(table, many_rows(range(first, first + 40)))
    shop.sql(f"DELETE FROM h.{table} WHERE id % 7 = 3")
    shop.sql(f"UPDATE h.{table} SET text = concat(text, ' again') WHERE id = 50")


def upgraded(shop: Workshop) -> None:
    _with_position_deletes(shop, "upgraded")


def position_deletes(shop: Workshop) -> None:
    table = _with_position_deletes(shop, "position_deletes")
    # The lists and manifests of the v2 past go, first out of use and then out of the history; the delete files stay as they are.
    shop.sql(f"CALL h.system.rewrite_manifests(table => '{table}', use_caching => false)")
    shop.sql(f"CALL h.system.expire_snapshots(table => '{table}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)")
    shop.sql(f"DELETE FROM h.{table} WHERE id IN (8, 9)")
    shop.append(table, id=[101], team=["b"], text=[CANARY])


def _with_position_deletes(shop: Workshop, name: str) -> str:
    """Delete files for one data file each, then delete files for a whole partition; the last append is the first one of v3."""
    table = shop.create(
        name,
        "id bigint, team string, text string",
        partitioned_by="team",
        properties={"write.delete.mode": "merge-on-read", "write.delete.granularity": "file"},
    )
    shop.reopen_as_v2(table)
    for first in (0, 20):
        ids = range(first, first + 20)
        shop.append(table, id=pa.array(ids, pa.int64()), team=["a", "b"] * 10, text=[f"{CANARY} {number}" for number in ids])
    shop.sql(f"DELETE FROM h.{table} WHERE id IN (0, 1, 2, 21)")
    shop.sql(f"ALTER TABLE h.{table} SET TBLPROPERTIES ('write.delete.granularity' = 'partition')")
    shop.sql(f"DELETE FROM h.{table} WHERE id IN (4, 5, 6, 25, 26)")
    shop.sql(f"ALTER TABLE h.{table} SET TBLPROPERTIES ('format-version' = '3')")
    shop.append(table, id=[100], team=["a"], text=[CANARY])
    return table


def equality_deletes(shop: Workshop) -> None:
    table = shop.create("equality_deletes", "id int, text string")
    for ids in ([0, 1, 2, 3, 4, 5], [4, 5, 6, 7]):
        shop.append(table, id=pa.array(ids, pa.int32()), text=[f"{CANARY} {number}" for number in ids])
    shop.java.append_equality_deletes(table, "id", [1, 4, 99])
    shop.append(table, id=pa.array([1, 8], pa.int32()), text=[f"{CANARY} new", None])
    shop.java.append_equality_deletes(table, "id", [8])


def all_types(shop: Workshop) -> None:
    table = shop.create("all_types", EXTREME_COLUMNS)
    shop.java.append(table, extreme_rows())
    shop.java.append(table, extreme_rows().slice(1))


def partitioned(shop: Workshop) -> None:
    table = shop.create(
        "partitioned",
        PARTITION_COLUMNS,
        partitioned_by="""team, bucket(4, id), truncate(3, code), truncate(100, amount),
                          years(day), months(month), days(local), hours(hour), bucket(2, bytes)""",
        properties={"write.delete.mode": "copy-on-write"},
    )
    shop.java.append(table, partition_rows())
    shop.sql(f"DELETE FROM h.{table} WHERE text LIKE '% 1' OR text LIKE '% 7'")


def key_length_24(shop: Workshop) -> None:
    _with_key_length(shop, 24)


def key_length_32(shop: Workshop) -> None:
    _with_key_length(shop, 32)


def _with_key_length(shop: Workshop, length: int) -> None:
    table = shop.create(
        f"key_length_{length}",
        "id bigint, text string",
        properties={"encryption.data-key-length": str(length), "write.delete.mode": "merge-on-read"},
    )
    for first in (0, 10):
        ids = range(first, first + 10)
        shop.append(table, id=pa.array(ids, pa.int64()), text=[f"{CANARY} {number}" for number in ids])
    shop.sql(f"DELETE FROM h.{table} WHERE id IN (3, 4, 15)")


def evolved(shop: Workshop) -> None:
    table = shop.create(
        "evolved",
        "id int, name string, note string, ratio float, price decimal(9, 2), address struct<street: string, zip: string>",
        partitioned_by="truncate(1, name)",
        properties={"write.delete.mode": "copy-on-write"},
    )
    insert, alter = f"INSERT INTO h.{table}", f"ALTER TABLE h.{table}"
    early_rows = f"id, name, note, float(id / 4), cast(id AS decimal(9, 2)), struct('{CANARY}', 'z')"
    with_extra = early_rows.replace("name,", f"name, '{CANARY} extra',")
    shop.sql(f"{insert} SELECT {early_rows} FROM {_people(0)}")
    shop.sql(f"{alter} ADD COLUMN extra string AFTER name")
    shop.sql(f"{insert} SELECT {with_extra} FROM {_people(10)}")
    shop.sql(f"{alter} CREATE TAG `before`")

    shop.sql(f"{alter} RENAME COLUMN note TO remark")
    for column, wider in (("id", "bigint"), ("ratio", "double"), ("price", "decimal(18, 2)")):
        shop.sql(f"{alter} ALTER COLUMN {column} TYPE {wider}")
    shop.sql(f"{alter} REPLACE PARTITION FIELD name_trunc WITH bucket(2, id)")
    wide_values = "1e300, 9999999999999999.99, struct('s', 'z')"
    shop.sql(f"{insert} VALUES ({2**40}, 'anna', '{CANARY} extra', '{CANARY} remark', {wide_values})")
    shop.sql(f"{alter} CREATE BRANCH experiment")
    shop.sql(f"{insert}.branch_experiment VALUES (77, 'branch', '{CANARY} extra', '{CANARY} remark', 0, 0, null)")
    shop.branches["evolved"] = ["experiment"]
    shop.tags["evolved"] = ["before"]

    shop.sql(f"{alter} ALTER COLUMN remark FIRST")
    shop.sql(f"{alter} DROP COLUMN extra")
    # A new column with an old one's name: its values in the older files are null.
    shop.sql(f"{alter} ADD COLUMN extra bigint")
    shop.sql(f"{alter} ADD COLUMN address.city string")
    shop.sql(f"{alter} RENAME COLUMN address.street TO road")
    shop.sql(f"{insert} VALUES ('{CANARY} remark', 30, 'bert', 2.5, 3, struct('r', 'z', 'c'), 5)")
    shop.sql(f"{insert} VALUES (null, 31, null, null, null, null, null)")
    shop.sql(f"DELETE FROM h.{table} WHERE id IN (1, 11)")


def _people(first: int) -> str:
    people = [f"({number}, '{'anna' if number % 2 else 'bert'}', '{CANARY} {number}')" for number in range(first, first + 4)]
    return f"VALUES {', '.join(people)} AS people(id, name, note)"


MAKERS: Final[tuple[Callable[[Workshop], None], ...]] = (
    avro_data,
    position_deletes,
    upgraded,
    equality_deletes,
    all_types,
    partitioned,
    key_length_24,
    key_length_32,
    evolved,
)


def write_expected(shop: Workshop, name: str, folder: Path) -> dict[str, Any]:
    """Let Java read every state of the table into `folder`; the table's entry for the index."""
    identifier = f"{NAMESPACE}.{name}"
    folder.mkdir(parents=True)
    snapshots = shop.java.snapshots(identifier)
    branches, tags = shop.branches.get(name, []), shop.tags.get(name, [])
    pq.write_table(shop.java.rows(identifier), folder / "current.parquet")
    pq.write_table(shop.java.rows(identifier, lineage=True), folder / "current-lineage.parquet")
    for number, snapshot in enumerate(snapshots):
        pq.write_table(shop.java.rows(identifier, snapshot["snapshot_id"]), folder / f"snapshot-{number}.parquet")
    for kind, refs in (("branch", branches), ("tag", tags)):
        for ref in refs:
            pq.write_table(shop.java.rows(identifier, ref), folder / f"{kind}-{ref}.parquet")
    entry = {"metadata": shop.java.metadata_location(identifier), "snapshots": snapshots, "iceberg": shop.java.versions["iceberg"]}
    return entry | ({"branches": branches} if branches else {}) | ({"tags": tags} if tags else {})


def save_bucket(shop: Workshop, folder: Path) -> None:
    """Copy what lies in the bucket to folder/<bucket>/<key>."""
    for page in shop.aws.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for item in page.get("Contents", []):
            path = folder / BUCKET / item["Key"]
            path.parent.mkdir(parents=True, exist_ok=True)
            shop.aws.s3.download_file(BUCKET, item["Key"], str(path))


def make(folder: Path) -> None:
    aws = AwsServer()
    aws.bucket(BUCKET)
    with tempfile.TemporaryDirectory() as scratch, JavaOracle(Path(scratch), aws.endpoint) as java:
        java.sql(f"CREATE NAMESPACE h.{NAMESPACE}")
        shop = Workshop(java, aws)
        index = {}
        for maker in MAKERS:
            maker(shop)
            index[maker.__name__] = write_expected(shop, maker.__name__, folder / "expected" / maker.__name__)
        save_bucket(shop, folder / "s3")
    (folder / f"{JAVA.name}.json").write_text(json.dumps(index, indent=1, default=str) + "\n")
    aws.stop()


def main() -> None:
    os.environ.update(CREDENTIALS, AWS_REGION=REGION, AWS_DEFAULT_REGION=REGION)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else JAVA
    for part in ("s3", "expected"):
        shutil.rmtree(folder / part, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    make(folder)


if __name__ == "__main__":
    main()
