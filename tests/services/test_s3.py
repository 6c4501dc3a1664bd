"""What S3 alone has: versions of objects that were replaced or deleted, which operations that remove data must not keep silent about."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tablecrypt.errors import KeyNotFoundError
from tablecrypt.maintenance import erase, migrate, shred
from tests.services.stores import FILE_IOS, ObjectStore
from tests.support.aws import AwsServer
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog, new_table, rows

if TYPE_CHECKING:
    from tablecrypt_catalog import EncryptedSqlCatalog
    from tests.services.versitygw import Versitygw

pytestmark = pytest.mark.services


@pytest.fixture(params=FILE_IOS)
def versioned(request: pytest.FixtureRequest, versitygw: Versitygw) -> ObjectStore:
    """A bucket that keeps versions."""
    store = versitygw.store(request.param)
    versitygw.s3.put_bucket_versioning(Bucket=bucket_of(store), VersioningConfiguration={"Status": "Enabled"})
    return store


@pytest.fixture
def catalog(versioned: ObjectStore, tmp_path: Path, aws: AwsServer) -> EncryptedSqlCatalog:
    return encrypted_sql_catalog(tmp_path, aws, versioned.catalog_properties)


def bucket_of(store: ObjectStore) -> str:
    return store.address.removeprefix("s3://")


def older_versions(server: Versitygw, store: ObjectStore) -> set[str]:
    """The objects of which the server keeps a version that nothing reads any more."""
    versions = server.s3.list_object_versions(Bucket=bucket_of(store)).get("Versions", [])
    return {f"{store.address}/{each['Key']}" for each in versions if not each["IsLatest"] and not each["Key"].endswith("/")}


def test_migrate_tells_of_the_plaintext_that_versions_keep(
    catalog: EncryptedSqlCatalog, versitygw: Versitygw, versioned: ObjectStore
) -> None:
    plain = catalog.create_table("db.t", rows(0).schema)
    plain.append(rows(0))
    result = migrate(plain, MASTER_KEY)
    kept = {location for location in older_versions(versitygw, versioned) if location.endswith(".parquet")}
    assert len(kept) == 1
    assert {each.location for each in result.left if each.what.startswith("version ") and each.location.endswith(".parquet")} == kept


def test_erase_tells_how_many_versions_hold_what_it_erased(
    catalog: EncryptedSqlCatalog, versitygw: Versitygw, versioned: ObjectStore
) -> None:
    table = new_table(catalog, appends=[rows(0)])
    erased = erase(table, "id = 3")
    assert erased.is_complete
    kept = {location for location in older_versions(versitygw, versioned) if not location.endswith(".metadata.json")}
    [sentence] = [each for each in erased.outside if "older versions of data files" in each]
    assert f"keeps {len(kept)} older versions" in sentence
    assert kept
    assert kept == {location for location in erased.deleted if not location.endswith(".metadata.json")}


def test_shred_tells_of_metadata_that_versions_keep_and_its_snapshots_stay_unreadable(
    catalog: EncryptedSqlCatalog, versitygw: Versitygw, versioned: ObjectStore
) -> None:
    table = new_table(catalog, appends=[rows(0), rows(100)])
    selected, yesterday = [table.snapshots()[0].snapshot_id], table.metadata_location
    result = shred(table, selected)
    kept = {location for location in older_versions(versitygw, versioned) if location.endswith(".metadata.json")}
    [sentence] = [each for each in result.outside if "older version" in each]
    assert f"keeps {len(kept)} older versions" in sentence
    assert kept == set(result.rewritten)
    catalog.drop_table("db.t")
    with pytest.raises(KeyNotFoundError):
        catalog.register_table("db.t", yesterday).scan(snapshot_id=selected[0]).to_arrow()


def test_metadata_is_never_written_over_what_is_there(catalog: EncryptedSqlCatalog, versitygw: Versitygw, versioned: ObjectStore) -> None:
    table = new_table(catalog, appends=[rows(0), rows(100)])
    table.delete("id = 3")
    assert older_versions(versitygw, versioned) == set()
