"""moto's AWS KMS with the master keys of the kit, for readers whose key service is AWS: it wraps as keys.json says."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.aws import CREDENTIALS, REGION, AwsServer, install_keys

_KEYS = Path(__file__).parents[1] / "keys.json"


@contextmanager
def kms_of_the_kit() -> Iterator[AwsServer]:
    """A running server."""
    os.environ.update(CREDENTIALS, AWS_REGION=REGION, AWS_DEFAULT_REGION=REGION)
    server = AwsServer()
    entries = json.loads(_KEYS.read_text())["master_keys"]
    install_keys([{"alias": each["alias"], "key_id": each["key_id"], "key_material_b64": each["key_base64"]} for each in entries])
    try:
        yield server
    finally:
        server.stop()
