"""Glue as moto has it, with S3 beside it, and with the check of versions that moto leaves out."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.glue import GlueCatalog

from tablecrypt_catalog.glue import EncryptedGlueCatalog
from tests.support.aws import REGION, AwsServer

_UPDATING: Final = threading.Lock()


def glue_properties(aws: AwsServer, bucket: str) -> dict[str, str]:
    """The properties of a catalog whose warehouse is in a bucket, with its keys in moto's KMS."""
    return {
        "py-catalog-impl": "tablecrypt_catalog.EncryptedGlueCatalog",
        "glue.endpoint": aws.endpoint,
        "glue.region": REGION,
        "warehouse": f"s3://{bucket}/warehouse",
        **aws.kms_properties,
        **aws.s3_properties,
    }


def encrypted_glue_catalog(aws: AwsServer, bucket: str, properties: Mapping[str, str] | None = None) -> EncryptedGlueCatalog:
    """A client of moto's Glue."""
    catalog = load_catalog("glue", **glue_properties(aws, bucket), **(properties or {}))
    assert isinstance(catalog, EncryptedGlueCatalog)
    check_version_ids(catalog)
    return catalog


def check_version_ids(catalog: GlueCatalog) -> None:
    """Refuse updates of another version than the current one, as Glue does and moto does not: the check and the update are one."""

    def check(params: dict[str, Any], **_more: Any) -> None:
        _UPDATING.acquire()
        current = catalog.glue.get_table(DatabaseName=params["DatabaseName"], Name=params["TableInput"]["Name"])["Table"]
        if params["VersionId"] == current["VersionId"]:
            return
        _UPDATING.release()
        error: Any = {
            "Error": {"Code": "ConcurrentModificationException", "Message": "Update table failed due to concurrent modifications."}
        }
        raise catalog.glue.exceptions.ConcurrentModificationException(error, "UpdateTable")

    def end(**_more: Any) -> None:
        _UPDATING.release()

    catalog.glue.meta.events.register("provide-client-params.glue.UpdateTable", check)
    catalog.glue.meta.events.register("after-call.glue.UpdateTable", end)
    catalog.glue.meta.events.register("after-call-error.glue.UpdateTable", end)
