"""A slip in a property makes no plain table: names are checked, catalogs can require encryption or give new tables a default key."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import tablecrypt
from tablecrypt.errors import ConfigurationError, KeyNotFoundError, MasterKeyRefusedError, PlaintextRefusedError
from tablecrypt.maintenance import audit, migrate
from tablecrypt_catalog import EncryptedInMemoryCatalog
from tests.support import denying_kms
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog, metadata_path

ROWS = pa.table({"name": [CANARY, "b"]})
REQUIRED = {"encryption.required": "true"}
MEMORY_KMS = {"encryption.kms-type": "memory"}


def as_version_3(metadata_file: Path) -> None:
    """Make metadata of a plain table such as Iceberg Java writes for version 3: PyIceberg itself does not."""
    metadata = json.loads(metadata_file.read_text())
    metadata_file.write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 0}))


def files_with_the_canary(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file() and CANARY.encode() in each.read_bytes()]


@pytest.mark.parametrize(
    ("slip", "advice"),
    [
        ("encryption.key_id", "write encryption.key-id"),
        ("Encryption.Key-Id", "write encryption.key-id"),
        ("ENCRYPTION.KEY-ID", "write encryption.key-id"),
        ("encryption.keyid", "Did you mean encryption.key-id"),
        ("encryption.key-di", "Did you mean encryption.key-id"),
        ("encryption.data-key-lenght", "Did you mean encryption.data-key-length"),
        (" encryption.key-id", "write encryption.key-id"),
        ("encryption.default-key-id", "encryption.default-key-id is a property of a catalog"),
        ("encryption.flavour", "docs/reference/properties.md"),
        ("tablecrypt.key-id", "docs/reference/properties.md"),
        ("table.encryption.key-id", "write encryption.key-id"),
        ("spark.sql.catalog.prod.encryption.key_id", "write encryption.key-id"),
    ],
)
@pytest.mark.parametrize("in_transaction", [False, True], ids=["table", "transaction"])
def test_a_misspelt_property_makes_no_table(tmp_path: Path, aws: AwsServer, slip: str, advice: str, in_transaction: bool) -> None:
    catalog = encrypted_sql_catalog(tmp_path, aws)
    create = catalog.create_table_transaction if in_transaction else catalog.create_table

    with pytest.raises(ConfigurationError, match=advice):
        create("db.t", ROWS.schema, properties={slip: MASTER_KEY})

    assert catalog.list_tables("db") == []


@pytest.mark.parametrize(
    ("slip", "advice"),
    [
        ("encryption.key-id", "property of each table. For all new tables of the catalog set encryption.default-key-id"),
        ("table-default.encryption.key-id", "set encryption.default-key-id"),
        ("table-override.encryption.key_id", "set encryption.default-key-id"),
        ("encryption.require", "Did you mean encryption.required"),
        ("encryption.default_key_id", "write encryption.default-key-id"),
        ("encryption.pin", "Did you mean encryption.pins"),
        ("encryption.kms_type", "write encryption.kms-type"),
        ("encryption.data-key-length", "is a property of a table"),
        ("encrytion.key-id", "docs/reference/properties.md"),
        ("py-kms-imp", "Did you mean py-kms-impl"),
        ("py_kms_impl", "write py-kms-impl"),
        ("py-catalog-imp", "Did you mean py-catalog-impl"),
        ("spark.sql.catalog.prod.encryption.required", "write encryption.required"),
    ],
)
def test_a_catalog_with_a_misspelt_property_is_not_made(slip: str, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        EncryptedInMemoryCatalog("prod", **{**MEMORY_KMS, slip: "true"})


def test_a_key_service_of_the_users_own_may_have_names_of_its_own_but_no_slips_of_ours() -> None:
    own = {"encryption.kms-impl": denying_kms.CLASS, "encryption.my-hsm.slot": "3"}
    assert EncryptedInMemoryCatalog("prod", **own).properties["encryption.my-hsm.slot"] == "3"

    with pytest.raises(ConfigurationError, match=r"encryption\.required"):
        EncryptedInMemoryCatalog("prod", **own, **{"encryption.requird": "true"})


def test_a_slip_is_not_committed_to_a_table_that_is_there(tmp_path: Path, aws: AwsServer) -> None:
    table = encrypted_sql_catalog(tmp_path, aws).create_table("db.t", ROWS.schema, properties={"encryption.key-id": MASTER_KEY})

    with pytest.raises(ConfigurationError, match=r"Did you mean encryption\.kek-lifespan-ms"), table.transaction() as transaction:
        transaction.set_properties({"encryption.kek-lifespan": "1000"})


class TestRequired:
    """encryption.required=true."""

    def test_no_plain_table_is_created(self, tmp_path: Path, aws: AwsServer) -> None:
        catalog = encrypted_sql_catalog(tmp_path, aws, REQUIRED)

        for create in (catalog.create_table, catalog.create_table_transaction, catalog.create_table_if_not_exists):
            with pytest.raises(ConfigurationError, match=r"encryption\.default-key-id"):
                create("db.t", ROWS.schema)

        assert catalog.list_tables("db") == []

    def test_no_plain_table_is_opened_or_written(self, unwatched_warehouse: Path, aws: AwsServer) -> None:
        allowing = encrypted_sql_catalog(unwatched_warehouse, aws)
        tables = {name: allowing.create_table(f"db.{name}", ROWS.schema) for name in ("v2", "v3")}
        as_version_3(metadata_path(tables["v3"]))
        assert [allowing.load_table(f"db.{name}").metadata.format_version for name in tables] == [2, 3]
        requiring = encrypted_sql_catalog(unwatched_warehouse, aws, REQUIRED)

        for name, table in tables.items():
            with pytest.raises(PlaintextRefusedError, match=f"db.{name} is not encrypted"):
                requiring.load_table(f"db.{name}")
            with pytest.raises(PlaintextRefusedError, match=f"db.{name} is not encrypted"):
                requiring.create_table_if_not_exists(f"db.{name}", ROWS.schema, properties={"encryption.key-id": MASTER_KEY})
            opened_before = Table(table.name(), table.metadata, table.metadata_location, table.io, requiring)
            with pytest.raises(PlaintextRefusedError, match=f"db.{name} is not encrypted"), opened_before.transaction() as transaction:
                transaction.set_properties({"a": "b"})

    def test_audit_and_migration_still_read_plain_tables(self, unwatched_warehouse: Path, aws: AwsServer) -> None:
        encrypted_sql_catalog(unwatched_warehouse, aws).create_table("db.t", ROWS.schema).append(ROWS)
        requiring = encrypted_sql_catalog(unwatched_warehouse, aws, REQUIRED)

        assert audit(requiring).has_plaintext
        migrate(requiring.load_unencrypted("db.t"), MASTER_KEY)

        assert requiring.load_table("db.t").scan().to_arrow() == ROWS

    def test_polars_creates_no_plain_table(self, tmp_path: Path, aws: AwsServer) -> None:
        catalog = encrypted_sql_catalog(tmp_path, aws, REQUIRED)

        with pytest.raises(ConfigurationError, match="would not be encrypted"):
            pl.LazyFrame(ROWS).sink_iceberg("db.t", mode="append", create_if_not_exists=True, catalog=catalog)

        assert files_with_the_canary(tmp_path) == []


class TestDefaultKey:
    """encryption.default-key-id."""

    @pytest.fixture
    def catalog(self, tmp_path: Path, aws: AwsServer) -> Catalog:
        return encrypted_sql_catalog(tmp_path, aws, {**REQUIRED, "encryption.default-key-id": MASTER_KEY})

    def test_every_new_table_has_it(self, catalog: Catalog, tmp_path: Path) -> None:
        catalog.create_table("db.one", ROWS.schema).append(ROWS)
        with catalog.create_table_transaction("db.two", ROWS.schema) as transaction:
            transaction.append(ROWS)
        catalog.create_table_if_not_exists("db.three", ROWS.schema).append(ROWS)

        for name in ("one", "two", "three"):
            table = catalog.load_table(f"db.{name}")
            assert tablecrypt.is_encrypted(table)
            assert f"encrypted: encryption.key-id {MASTER_KEY}" in repr(table)
            assert table.scan().to_arrow() == ROWS
        assert files_with_the_canary(tmp_path) == []

    def test_a_table_may_name_another(self, catalog: Catalog, aws: AwsServer) -> None:
        other = aws.new_key()
        table = catalog.create_table("db.t", ROWS.schema, properties={"encryption.key-id": other})

        assert table.properties["encryption.key-id"] == other


class TestDefaultKeyOfANamespace:
    """encryption.default-key-id among a namespace's properties, where anybody who writes to the catalog can put it."""

    @staticmethod
    def catalog(tmp_path: Path, aws: AwsServer, key_id: str, **properties: str) -> Catalog:
        catalog = encrypted_sql_catalog(tmp_path, aws, properties)
        catalog.create_namespace("team", {"encryption.default-key-id": key_id})
        return catalog

    def test_a_key_that_the_client_allows_comes_before_the_catalogs_default(self, tmp_path: Path, aws: AwsServer) -> None:
        own = aws.new_key()
        allowed = {"encryption.allowed-key-ids": f"{MASTER_KEY},{own}", "encryption.default-key-id": MASTER_KEY}
        catalog = self.catalog(tmp_path, aws, own, **allowed)

        assert catalog.create_table("team.t", ROWS.schema).properties["encryption.key-id"] == own
        with catalog.create_table_transaction("team.u", ROWS.schema) as transaction:
            transaction.append(ROWS)
        assert catalog.load_table("team.u").properties["encryption.key-id"] == own
        named = catalog.create_table("team.v", ROWS.schema, properties={"encryption.key-id": MASTER_KEY})
        assert named.properties["encryption.key-id"] == MASTER_KEY
        assert catalog.create_table("db.t", ROWS.schema).properties["encryption.key-id"] == MASTER_KEY

    def test_a_key_that_the_client_does_not_list_makes_no_table(self, tmp_path: Path, aws: AwsServer) -> None:
        catalog = self.catalog(tmp_path, aws, MASTER_KEY)
        with pytest.raises(ConfigurationError, match=r"set encryption\.allowed-key-ids"):
            catalog.create_table("team.t", ROWS.schema)
        assert not catalog.table_exists("team.t")

    def test_a_key_that_the_client_does_not_allow_makes_no_table(self, tmp_path: Path, aws: AwsServer) -> None:
        foreign = aws.new_key()
        catalog = self.catalog(
            tmp_path, aws, foreign, **{"encryption.allowed-key-ids": MASTER_KEY, "encryption.default-key-id": MASTER_KEY}
        )
        with pytest.raises(MasterKeyRefusedError, match="namespace team by its property"):
            catalog.create_table("team.t", ROWS.schema)
        assert not catalog.table_exists("team.t")

    def test_a_namespace_that_is_there_without_it_does_not_pass_for_one_with_it(self, tmp_path: Path, aws: AwsServer) -> None:
        catalog = encrypted_sql_catalog(tmp_path, aws)
        asked = {"encryption.default-key-id": MASTER_KEY}
        for namespace, there, found in ("plain", {}, "missing"), ("other", {"encryption.default-key-id": aws.new_key()}, "[0-9a-f-]{36}"):
            catalog.create_namespace(namespace, there)
            with pytest.raises(ConfigurationError, match=f"{namespace} is there already, with .* {found} and not {MASTER_KEY}"):
                catalog.create_namespace_if_not_exists(namespace, asked)
            assert catalog.load_namespace_properties(namespace).get("encryption.default-key-id") == there.get("encryption.default-key-id")

        for _ in range(2):
            catalog.create_namespace_if_not_exists("new", asked)


def test_a_key_that_the_kms_does_not_have_makes_no_table(tmp_path: Path, aws: AwsServer) -> None:
    catalog = encrypted_sql_catalog(tmp_path, aws)

    for create in (catalog.create_table, catalog.create_table_transaction):
        with pytest.raises(KeyNotFoundError, match="alias/orderz"):
            create("db.t", ROWS.schema, properties={"encryption.key-id": "alias/orderz"})

    assert catalog.list_tables("db") == []
    assert not list(tmp_path.rglob("*.metadata.json"))
