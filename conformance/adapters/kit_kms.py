"""moto's AWS KMS with the master keys of the kit, for readers whose key service is AWS: it wraps as keys.json says."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from moto.kms.models import kms_backends

from tests.support.aws import ACCOUNT, CREDENTIALS, REGION, AwsServer, install_keys

_KEYS = Path(__file__).parents[1] / "keys.json"


def hold(aliases: Sequence[str] | None = None) -> None:
    """Let the service know these master keys and no others: those that the reader of a case may use. By default all."""
    entries = json.loads(_KEYS.read_text())["master_keys"]
    held = [each for each in entries if aliases is None or each["alias"] in aliases]
    kms_backends[ACCOUNT][REGION].keys.clear()
    install_keys([{"alias": each["alias"], "key_id": each["key_id"], "key_material_b64": each["key_base64"]} for each in held])


@contextmanager
def kms_of_the_kit() -> Iterator[AwsServer]:
    """A running server."""
    os.environ.update(CREDENTIALS, AWS_REGION=REGION, AWS_DEFAULT_REGION=REGION)
    server = AwsServer()
    hold()
    try:
        yield server
    finally:
        server.stop()
