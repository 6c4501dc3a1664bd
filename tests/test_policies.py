"""The policy files that docs/how-to/permissions.md offers: each role can do its work with its file, and nothing beyond it."""

from __future__ import annotations

import datetime as dt
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from strictyaml import load

from tablecrypt.errors import ColumnKeyDeniedError, KmsAccessDeniedError
from tablecrypt.maintenance import (
    CheckState,
    audit,
    compact,
    describe,
    doctor,
    reencrypt,
    remove_orphan_files,
    rotate_column_keks,
    rotate_kek,
    shred,
    verify,
)
from tablecrypt.table.table_files import TableFileIO
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY
from tests.support.policies import POLICIES, ROLES, aws_policy, aws_user, vault_policy

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "ssn", StringType()))
ROWS = pa.table({"id": [1, 2, 3], "ssn": [CANARY] * 3})


@dataclass(frozen=True)
class Lake:
    """A bucket with the table db.people, whose column ssn is under a master key of its own."""

    aws: AwsServer
    folder: Path
    bucket: str
    table_key: str
    column_key: str

    def catalog(self, credentials: Mapping[str, str]) -> EncryptedSqlCatalog:
        s3 = {**self.aws.s3_properties, **self.aws.kms_properties}
        if credentials:
            s3.pop("s3.session-token")
        location = {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"s3://{self.bucket}/warehouse"}
        return EncryptedSqlCatalog("prod", **{**location, **s3, **credentials})

    @contextmanager
    def as_role(self, role: str) -> Iterator[EncryptedSqlCatalog]:
        """Open the catalog as somebody who has the policy file of a role and nothing else."""
        policy = aws_policy(role, self.bucket, self.table_key, self.column_key)
        with aws_user(self.aws, f"{role}-{secrets.token_hex(4)}", policy) as credentials:
            yield self.catalog(credentials)


@pytest.fixture
def lake(aws: AwsServer, tmp_path: Path) -> Lake:
    made = Lake(aws, tmp_path, aws.bucket(f"lake-{secrets.token_hex(6)}"), aws.new_key(), aws.new_key())
    catalog = made.catalog({})
    catalog.create_namespace("db")
    declared = {"encryption.key-id": made.table_key, "encryption.column-keys": f"{made.column_key}: ssn"}
    catalog.create_table("db.people", SCHEMA, properties=declared).append(ROWS)
    return made


def test_a_reader_reads_all_and_writes_nothing(lake: Lake) -> None:
    with lake.as_role("reader") as catalog:
        table = catalog.load_table("db.people")
        assert table.scan().to_arrow() == ROWS
        assert doctor(catalog, "db.people", read_only=True).is_well
        with pytest.raises((KmsAccessDeniedError, OSError)):
            table.append(ROWS)
        with pytest.raises(KmsAccessDeniedError):
            rotate_kek(table)
    assert len(lake.catalog({}).load_table("db.people").snapshots()) == 1


def test_a_masked_analyst_reads_masks_and_writes_nothing(lake: Lake) -> None:
    with lake.as_role("masked-analyst") as catalog:
        table = catalog.load_table("db.people")
        assert table.scan().to_arrow().to_pydict() == {"id": [1, 2, 3], "ssn": [None] * 3}
        with pytest.raises(ColumnKeyDeniedError):
            table.scan(row_filter="ssn = 'x'").to_arrow()
        with pytest.raises((KmsAccessDeniedError, OSError)):
            table.append(ROWS)


def test_a_writer_appends_and_deletes_rows_and_destroys_no_file(lake: Lake) -> None:
    with lake.as_role("writer") as catalog:
        table = catalog.load_table("db.people")
        table.append(ROWS)
        table.delete("id = 3")
        assert table.scan().to_arrow().num_rows == 4
        failing = [each.name for each in doctor(catalog, "db.people").checks if each.state is CheckState.FAILS]
        assert [each.partition(" from ")[0] for each in failing] == ["delete", "delete"]
        with pytest.raises(OSError):  # noqa: PT011  as the store's client words it
            cast("TableFileIO", table.io).inner.delete(table.metadata_location)


def test_an_operator_rotates_rewrites_and_cleans_up(lake: Lake) -> None:
    with lake.as_role("operator") as catalog:
        table = catalog.load_table("db.people")
        assert doctor(catalog, "db.people").is_well
        assert rotate_kek(table).new_kek
        assert rotate_column_keks(table).new_keks
        assert reencrypt(table).data_files == 1
        assert compact(table, rewrite_all=True).rewritten_files == 1
        shredded = shred(table, [each.snapshot_id for each in table.refresh().snapshots()[:-1]], replace_heads=True)
        assert shredded.is_complete, shredded
        assert remove_orphan_files(table, dt.datetime(2999, 1, 1, tzinfo=dt.UTC), dry_run=False).failed == {}
        assert table.refresh().scan().to_arrow().sort_by("id").to_pydict() == ROWS.to_pydict()


def test_an_auditor_audits_and_sees_no_protected_value(lake: Lake) -> None:
    with lake.as_role("auditor") as catalog:
        found = audit(catalog)
        assert [each.table for each in found.tables] == ["db.people"]
        assert not found.has_plaintext
        assert describe(catalog.load_table("db.people")).unread == {}
        assert not verify(catalog.load_table("db.people")).bad
        assert catalog.load_table("db.people").scan().to_arrow()["ssn"].null_count == 3
        with pytest.raises((KmsAccessDeniedError, OSError)):
            catalog.load_table("db.people").append(ROWS)


def test_somebody_with_the_bucket_alone_reads_no_row(lake: Lake) -> None:
    policy = json.loads(aws_policy("reader", lake.bucket, lake.table_key, lake.column_key))
    policy["Statement"] = [each for each in policy["Statement"] if each["Sid"] != "Keys"]
    with aws_user(lake.aws, f"files-{secrets.token_hex(4)}", json.dumps(policy)) as credentials:
        table = lake.catalog(credentials).load_table("db.people")
        with pytest.raises(KmsAccessDeniedError):
            table.scan().to_arrow()
        assert describe(table).size is None


def test_the_page_shows_the_files_as_they_are_and_links_all_of_them() -> None:
    page = (POLICIES.parent / "permissions.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\[[\w-]+\]\((policies/[^)]+)\):\n\n```\w+\n(.*?)```$", page, re.MULTILINE | re.DOTALL))
    files = {f"policies/{each.relative_to(POLICIES)}": each.read_text(encoding="utf-8") for each in POLICIES.rglob("*.*")}

    assert len(files) == 4 * len(ROLES)
    assert shown == {name: text for name, text in files.items() if "/aws/" in name or "/vault/" in name}
    assert [name for name in files if f"]({name})" not in page] == []


WRAP = {"writer", "operator"}
COLUMN_KEY = {"reader", "writer", "operator"}


@pytest.mark.parametrize("role", ROLES)
def test_the_files_of_a_role_grant_the_same_on_every_service(role: str) -> None:
    aws = {each["Sid"]: each for each in json.loads((POLICIES / "aws" / f"{role}.json").read_text())["Statement"]}
    gcp = set(load((POLICIES / "gcp" / f"{role}.yaml").read_text()).data["includedPermissions"])
    azure = json.loads((POLICIES / "azure" / f"{role}.json").read_text())
    vault = vault_policy(role)

    assert ("kms:Encrypt" in aws["Keys"]["Action"]) == (role in WRAP)
    assert ("cloudkms.cryptoKeyVersions.useToEncrypt" in gcp) == (role in WRAP)
    assert ("Microsoft.KeyVault/vaults/keys/wrap/action" in azure["DataActions"]) == (role in WRAP)
    assert ("transit/encrypt/orders" in vault) == (role in WRAP)
    assert isinstance(aws["Keys"]["Resource"], list) == (role in COLUMN_KEY) == ("transit/decrypt/pii" in vault)
    deletes = {
        "s3:DeleteObject" in aws["Files"]["Action"],
        "storage.objects.delete" in gcp,
        any(each.endswith("/blobs/delete") for each in azure["DataActions"]),
    }
    assert deletes == {role == "operator"}
    assert azure["Actions"] == []
    assert all(capabilities == ["update"] for capabilities in vault.values())
    assert not any("*" in each for each in (*gcp, *azure["DataActions"], *vault, *aws["Keys"]["Action"], *aws["Files"]["Action"]))
