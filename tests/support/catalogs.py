"""Catalogs for tests: real ones, on SQLite, with files in a folder or a bucket and keys in moto's KMS."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from pyiceberg.catalog import load_catalog

from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer

MASTER_KEY = "alias/orders"
"""A key that moto's KMS and the golden tables share."""


def encrypted_sql_catalog(folder: Path, aws: AwsServer, properties: Mapping[str, str] | None = None) -> EncryptedSqlCatalog:
    """A catalog whose database and warehouse are in `folder`, with the namespace `db`."""
    catalog = load_catalog(
        "prod",
        **{
            "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
            **aws.kms_properties,
            **aws.s3_properties,
            **(properties or {}),
        },
    )
    catalog.create_namespace_if_not_exists("db")
    return cast("EncryptedSqlCatalog", catalog)
