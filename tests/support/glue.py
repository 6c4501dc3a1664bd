"""Glue as moto has it, with S3 beside it, and with the check of versions that moto leaves out; and a way there that loses an answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import requests
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.glue import GlueCatalog

from tablecrypt_catalog.glue import EncryptedGlueCatalog
from tests.support.aws import REGION, AwsServer
from tests.support.http_server import HttpServer

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
        try:
            current = catalog.glue.get_table(DatabaseName=params["DatabaseName"], Name=params["TableInput"]["Name"])["Table"]
        except BaseException:
            # Of an entry that a rename has removed, no request to update follows, and so none of the ends below.
            _UPDATING.release()
            raise
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


class LosingAnswers(HttpServer):
    """A way to moto's Glue on which one answer is lost. The client of AWS sends the request again, and is told what that changed.

    Args:
        operation: of whose requests the first is not answered.
        meanwhile: done between that request and its second sending.
        lands: whether the request that is not answered reaches Glue.
    """

    def __init__(self, aws: AwsServer, operation: str, meanwhile: Callable[[], object] = dict, *, lands: bool = True) -> None:
        self._endpoint, self._operation, self._meanwhile, self._lands = aws.endpoint, operation, meanwhile, lands
        self._asked = 0
        super().__init__()

    def serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, Mapping[str, str]] | None:
        """Answer one request."""
        if not headers.get("x-amz-target", "").endswith(f".{self._operation}"):
            return self._forward(method, path, headers, body)

        self._asked += 1
        if self._asked == 1:
            if self._lands:
                self._forward(method, path, headers, body)
            self._meanwhile()
            return None
        # The version that it is about has gone by, which moto does not look at.
        if self._asked == 2 and self._operation == "UpdateTable":
            gone = {"__type": "ConcurrentModificationException", "Message": "Update table failed due to concurrent modifications."}
            return 400, json.dumps(gone).encode(), {}
        return self._forward(method, path, headers, body)

    def _forward(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, Mapping[str, str]]:
        sent = {name: value for name, value in headers.items() if name.startswith(("x-amz", "content-type", "authorization"))}
        answer = requests.request(method, f"{self._endpoint}{path}", data=body, headers=sent, timeout=60)
        return answer.status_code, answer.content, {}
