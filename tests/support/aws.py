"""A moto server (S3, KMS, STS) on a free port, whose KMS keys have fixed ids and fixed key material.

The keys are those that wrapped the KEKs of tests/vectors/golden, so that tables written long ago by Iceberg Java still decrypt.
"""

from __future__ import annotations

import base64
import functools
import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import boto3
import moto.core.responses
import moto.kms.models
from moto.kms.models import kms_backends
from moto.kms.utils import AbstractPrivateKey, generate_private_key
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from mypy_boto3_kms import KMSClient

ACCOUNT: Final = "123456789012"
REGION: Final = "us-east-1"
GOLDEN_KEYS: Final = Path(__file__).parents[1] / "vectors" / "golden" / "kms_keys.json"
CREDENTIALS: Final[Mapping[str, str]] = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_SESSION_TOKEN": "testing"}


# For each request moto looks through its own folder twice, and through the names of a class: a third of what a request costs, of which the
# suite makes some hundred thousand. What they find stays.
for _owner, _name in ((DomainDispatcherApplication, "get_backend_for_host"), (moto.core.responses, "method_names_from_class")):
    setattr(_owner, _name, functools.cache(getattr(_owner, _name)))


@functools.cache
def _unused_private_key() -> AbstractPrivateKey:
    return generate_private_key("SYMMETRIC_DEFAULT")


def _private_key_of(key_spec: str) -> AbstractPrivateKey:
    """moto makes an RSA key for symmetric keys too, which takes about 50 ms, and uses it for nothing: one serves all of them."""
    return _unused_private_key() if key_spec == "SYMMETRIC_DEFAULT" else generate_private_key(key_spec)


moto.kms.models.generate_private_key = _private_key_of  # type: ignore[attr-defined]


class AwsServer:
    """One running server. moto keeps its state per process, so two servers in one process share keys and buckets."""

    region = REGION

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"
        self._key_ids = install_keys(json.loads(GOLDEN_KEYS.read_text()))
        self.s3 = boto3.client("s3", endpoint_url=self.endpoint, region_name=REGION)
        self.kms: KMSClient = boto3.client("kms", endpoint_url=self.endpoint, region_name=REGION)

    @property
    def kms_properties(self) -> dict[str, str]:
        """What a catalog needs to reach this server's KMS."""
        return {"encryption.kms-type": "aws", "kms.endpoint": self.endpoint, "client.region": REGION}

    @property
    def s3_properties(self) -> dict[str, str]:
        """What a PyIceberg FileIO needs to reach this server's S3."""
        return s3_properties(self.endpoint)

    def kms_key_id(self, alias: str) -> str:
        """The key id behind one of the golden aliases, e.g. "alias/orders"."""
        return self._key_ids[alias]

    def new_key(self) -> str:
        """Create a symmetric key that no other test uses; return its key id."""
        return self.kms.create_key()["KeyMetadata"]["KeyId"]

    def bucket(self, name: str) -> str:
        """Create the bucket if it is not there; return its name."""
        self.s3.create_bucket(Bucket=name)
        return name

    def load_bucket(self, folder: Path | str) -> None:
        """Upload folder/<bucket>/<key> for every file below, creating the buckets."""
        for bucket in sorted(path for path in Path(folder).iterdir() if path.is_dir()):
            self.bucket(bucket.name)
            for path in sorted(path for path in bucket.rglob("*") if path.is_file()):
                self.s3.upload_file(str(path), bucket.name, path.relative_to(bucket).as_posix())

    def stop(self) -> None:
        self._server.stop()


def s3_properties(endpoint: str) -> dict[str, str]:
    """What a PyIceberg FileIO needs to reach moto's S3 at an address."""
    return {
        "s3.endpoint": endpoint,
        "s3.access-key-id": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        "s3.session-token": CREDENTIALS["AWS_SESSION_TOKEN"],
        "s3.region": REGION,
        "s3.force-virtual-addressing": "false",
        # Arrow gives up after three seconds without a byte, which the server takes now and then on a busy machine.
        "s3.connect-timeout": "60",
        "s3.request-timeout": "60",
    }


def install_keys(entries: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Give moto's KMS master keys, each with an alias, an id and its material in base64; return the id of each alias."""
    backend = kms_backends[ACCOUNT][REGION]
    key_ids = {}
    for entry in entries:
        key_ids[entry["alias"]] = entry["key_id"]
        if entry["key_id"] in backend.keys:
            continue
        key = backend.create_key(None, "ENCRYPT_DECRYPT", "SYMMETRIC_DEFAULT", entry["alias"], None)
        del backend.keys[key.id]
        key.id = entry["key_id"]
        key.arn = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{key.id}"
        key.key_material = base64.b64decode(entry["key_material_b64"])
        backend.keys[key.id] = key
        backend.create_alias(key.id, entry["alias"])
    return key_ids
