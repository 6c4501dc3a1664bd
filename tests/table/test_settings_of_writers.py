"""Properties that say how a table is written: what cannot be used is refused when it is set, and where it is stored already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance.expiry import expire_snapshots
from tablecrypt_catalog import EncryptedInMemoryCatalog
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edited
from tests.support.tables import ENCRYPTED, ROWS, SCHEMA, new_table, unpinned_catalog

OF_FILES = [
    ("write.parquet.compression-codec", "lzo"),
    ("write.parquet.compression-codec", ""),
    ("write.parquet.compression-level", "best"),
    ("write.parquet.compression-level", "99999999999999999999"),
    ("write.parquet.page-size-bytes", "1 MB"),
    ("write.parquet.page-row-limit", "0"),
    ("write.parquet.page-row-limit", "-1"),
    ("write.parquet.dict-size-bytes", "NaN"),
    ("write.parquet.row-group-limit", "many"),
    ("write.target-file-size-bytes", "99999999999999999999"),
    ("write.target-file-size-bytes", "512MB"),
    ("write.metadata.metrics.default", "truncate(0)"),
    ("write.metadata.metrics.default", "some"),
    ("write.metadata.metrics.column.id", ""),
    ("write.summary.partition-limit", "yes"),
    ("write.summary.partition-limit", str(2**31)),
    ("write.parquet.page-size-bytes", str(2**31)),
]
OF_EXPIRY = [
    ("history.expire.max-snapshot-age-ms", "5 days"),
    ("history.expire.min-snapshots-to-keep", "0"),
    ("history.expire.max-ref-age-ms", "-1"),
]
OF_ROW_CHANGES = [
    ("write.delete.mode", " merge-on-read"),
    ("write.update.mode", ""),
    ("write.merge.mode", "merge_on_read"),
    ("write.delete.isolation-level", "snapshots"),
    ("write.update.isolation-level", ""),
    ("write.merge.isolation-level", "none"),
]
OF_SPARK_AND_JAVA = [
    ("write.distribution-mode", "hashed"),
    ("write.merge.distribution-mode", ""),
    ("write.spark.fanout.enabled", "maybe"),
    ("read.split.target-size", "128MB"),
    ("read.split.open-file-cost", "-1"),
    ("write.metadata.compression-codec", "text"),
    ("write.metadata.metrics.max-inferred-column-defaults", "all"),
    ("write.parquet.row-group-check-min-record-count", "0"),
    ("write.avro.compression-level", "best"),
    ("write.delete.granularity", "row"),
    ("read.split.planning-lookback", "0"),
    ("commit.retry.total-timeout-ms", str(2**31)),
    ("commit.manifest.min-count-to-merge", str(2**31)),
    ("write.metadata.previous-versions-max", str(2**31)),
    ("history.expire.min-snapshots-to-keep", str(2**31)),
]
_FOUR: Any = "four"
OF_COMMITS = [
    ("write.object-storage.enabled", "NaN"),
    ("write.object-storage.partitioned-paths", "ture"),
    ("commit.manifest-merge.enabled", "-1"),
    ("commit.manifest.target-size-bytes", "8MB"),
    ("commit.manifest.min-count-to-merge", "many"),
    ("write.metadata.delete-after-commit.enabled", "ture"),
    ("write.metadata.previous-versions-max", "yes"),
    ("write.format.default", "parqet"),
    ("write.format.default", ""),
    ("write.avro.compression-codec", "lzma"),
    *OF_EXPIRY,
]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.target-file-size-bytes", str(2**63 - 1)),
        ("history.expire.max-ref-age-ms", str(2**63 - 1)),
        ("write.metadata.metrics.default", "FULL"),
        ("write.metadata.metrics.column.id", "Truncate(8)"),
        ("write.parquet.compression-codec", "GZIP"),
        ("write.delete.mode", "Merge-On-Read"),
    ],
)
def test_what_java_understands_is_taken(catalog: EncryptedInMemoryCatalog, name: str, value: str) -> None:
    table = new_table(catalog, appends=[ROWS], properties={name: value})

    assert table.scan().to_arrow().num_rows == 3


@pytest.mark.parametrize(("name", "value"), [*OF_FILES, *OF_COMMITS, *OF_ROW_CHANGES, *OF_SPARK_AND_JAVA])
def test_a_value_that_cannot_be_used_is_not_set(catalog: EncryptedInMemoryCatalog, name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} is '{value.replace('(0)', '.0.')}'; it must be"):
        catalog.create_table("db.odd", ROWS.schema, properties={**ENCRYPTED, name: value})
    assert catalog.list_tables("db") == []
    table = new_table(catalog)

    with pytest.raises(ConfigurationError, match=f"^{name} is"), table.transaction() as transaction:
        transaction.set_properties({name: value})

    assert name not in table.refresh().properties


@pytest.mark.parametrize(("name", "value"), OF_FILES)
def test_where_another_client_has_stored_it_nothing_is_written_until_it_is_mended(
    warehouse: Path, aws: AwsServer, name: str, value: str
) -> None:
    table = edited(
        new_table(unpinned_catalog(warehouse, aws), appends=[ROWS]), lambda metadata: metadata["properties"].update({name: value})
    )
    before = sorted(warehouse.rglob("*.parquet"))

    with pytest.raises(ConfigurationError, match=f"^{name} is"):
        table.append(ROWS)

    assert sorted(warehouse.rglob("*.parquet")) == before
    assert table.scan().to_arrow().num_rows == ROWS.num_rows
    with table.transaction() as transaction:
        transaction.remove_properties(name)
    table.append(ROWS)

    assert table.scan().to_arrow().num_rows == 2 * ROWS.num_rows


@pytest.mark.parametrize("level", ["snapshots", "SNAPSHOT"])
def test_an_isolation_level_that_another_client_has_stored_is_read_whether_others_commit_or_not(
    warehouse: Path, aws: AwsServer, level: str
) -> None:
    """PyIceberg reads it where it finds a conflict, in small letters alone: until then a misspelt level would count as serializable."""
    stored = {"write.delete.isolation-level": level}
    table = edited(new_table(unpinned_catalog(warehouse, aws), appends=[ROWS]), lambda metadata: metadata["properties"].update(stored))
    before = table.metadata_location

    if level == "snapshots":
        with pytest.raises(ConfigurationError, match=r"^write\.delete\.isolation-level is 'snapshots'; .*Did you mean snapshot"):
            table.delete("id = 1")
        assert table.refresh().metadata_location == before
        return

    with table.transaction() as transaction:
        transaction.delete("id = 1")
        # Rows of others that match are no conflict to a delete at this level.
        table.catalog.load_table(table.name()).append(ROWS)
    assert table.refresh().scan().to_arrow().num_rows == 2 * ROWS.num_rows - 1


def test_another_format_version_is_not_taken_for_a_property(catalog: EncryptedInMemoryCatalog) -> None:
    table = new_table(catalog)

    for version in ("2", "", "4"):
        with pytest.raises(ConfigurationError, match="format version 3, which cannot become"), table.transaction() as transaction:
            transaction.set_properties({"format-version": version})
    with table.transaction() as transaction:
        transaction.set_properties({"format-version": "3", "owner": "tests"})

    assert table.refresh().properties.get("owner") == "tests"
    assert "format-version" not in table.properties


@pytest.mark.parametrize(("name", "value"), OF_EXPIRY)
def test_where_another_client_has_stored_it_no_snapshot_expires(warehouse: Path, aws: AwsServer, name: str, value: str) -> None:
    table = edited(
        new_table(unpinned_catalog(warehouse, aws), appends=[ROWS, ROWS]), lambda metadata: metadata["properties"].update({name: value})
    )

    with pytest.raises(ConfigurationError, match=f"^{name} is"):
        expire_snapshots(table, delete_below=[table.location()])

    assert len(table.refresh().snapshots()) == 2


@pytest.mark.parametrize(("codec", "level"), [("snappy", "3"), ("uncompressed", "1"), ("gzip", "100")])
def test_a_level_that_the_codec_does_not_have_is_refused(catalog: EncryptedInMemoryCatalog, codec: str, level: str) -> None:
    levels = {"write.parquet.compression-codec": codec, "write.parquet.compression-level": level}
    table = new_table(catalog, schema=ROWS.schema, properties=levels)

    with pytest.raises(ConfigurationError, match=rf"^write\.parquet\.compression-level is {level}, and \w+ has no such level .*remove"):
        table.append(ROWS)


@pytest.mark.parametrize("codec", ["UNCOMPRESSED", "Uncompressed", "none", "ZSTD", "Lz4", "lz4_raw", "brotli"])
def test_a_codec_is_a_word_in_letters_of_any_case_as_in_java(catalog: EncryptedInMemoryCatalog, codec: str) -> None:
    table = new_table(catalog, properties={"write.parquet.compression-codec": codec}, appends=[ROWS])

    assert table.scan().to_arrow().num_rows == ROWS.num_rows


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path"])
@pytest.mark.parametrize("place", ["", " ", "elsewhere", "./elsewhere", "~/elsewhere", "file:elsewhere", "\n/elsewhere"])
def test_a_place_that_is_another_in_each_folder_is_not_set(catalog: EncryptedInMemoryCatalog, name: str, place: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} is .*; it must be an absolute path or a URI"):
        catalog.create_table("db.odd", ROWS.schema, properties={**ENCRYPTED, name: place})
    assert catalog.list_tables("db") == []


@pytest.mark.parametrize("form", ["{}/elsewhere", "file://{}/elsewhere", "file:{}/elsewhere"])
def test_a_place_that_is_the_same_everywhere_is_used(catalog: EncryptedInMemoryCatalog, warehouse: Path, form: str) -> None:
    table = new_table(catalog, properties={"write.data.path": form.format(warehouse)}, appends=[ROWS])

    assert table.scan().to_arrow().num_rows == ROWS.num_rows
    assert [*(warehouse / "elsewhere").rglob("*.parquet")]


@pytest.mark.parametrize(
    "transform",
    [BucketTransform(0), BucketTransform(-3), BucketTransform(2**31), BucketTransform(_FOUR), TruncateTransform(0), TruncateTransform(-1)],
)
def test_rows_are_not_partitioned_by_no_buckets(catalog: EncryptedInMemoryCatalog, transform: Transform[Any, Any]) -> None:
    said = r"^the partition field '[\w-]+' is \w+\[(-?\d+|four)\]: its number must be between 1 and 2147483647$"
    with pytest.raises(ConfigurationError, match=said):
        catalog.create_table(
            "db.odd", SCHEMA, partition_spec=PartitionSpec(PartitionField(1, 1000, transform, "part")), properties=ENCRYPTED
        )
    assert catalog.list_tables("db") == []
    table = new_table(catalog, appends=[ROWS])

    with pytest.raises(ConfigurationError, match=said), table.update_spec() as update:
        update.add_field("id", transform)

    assert table.refresh().spec().is_unpartitioned()
    table.append(ROWS)


def test_no_partition_field_gets_an_empty_name(catalog: EncryptedInMemoryCatalog) -> None:
    said = r"^a partition field has an empty name, which no manifest can hold"
    unnamed = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), ""))
    with pytest.raises(ConfigurationError, match=said):
        catalog.create_table("db.odd", SCHEMA, partition_spec=unnamed, properties=ENCRYPTED)
    assert catalog.list_tables("db") == []
    table = new_table(catalog, appends=[ROWS])

    with pytest.raises(ConfigurationError, match=said), table.update_spec() as update:
        update.add_field("id", IdentityTransform(), "")

    table.refresh().append(ROWS)
    assert table.scan().count() == 2 * ROWS.num_rows
