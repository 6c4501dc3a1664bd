"""A file may say which KMS its keys are wrapped by. Nobody is called because of that: the client's own configuration names the KMS."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tablecrypt
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.parquet import PropertiesDrivenCryptoFactory, decrypt, inspect, read_table, verify, write_table
from tests.support.aws import AwsServer

ROWS = pa.table({"id": [1, 2, 3]})
READERS: dict[str, Callable[[str, Any], object]] = {
    "read_table": read_table,
    "verify": verify,
    "inspect": inspect,
    "decrypt": lambda path, keys: decrypt(path, io.BytesIO(), keys),
}


class Stranger:
    """Listens, and remembers whether anybody came."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.callers = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                return
            self.callers += 1
            caller.close()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def kms(aws: AwsServer) -> KeyManagementClient:
    return tablecrypt.load_kms(aws.kms_properties)


@pytest.fixture(scope="module")
def readers_kms(aws: AwsServer) -> KeyManagementClient:
    """Without the keys that the writer's client remembers."""
    return tablecrypt.load_kms(aws.kms_properties)


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    listening = Stranger()
    yield listening
    listening.close()


def elsewhere(material: bytes | str, stranger: Stranger) -> str:
    """The same key material, saying that the stranger is its KMS."""
    fields = json.loads(material)
    fields |= {"kmsInstanceID": f"127.0.0.1:{stranger.port}", "kmsInstanceURL": f"http://127.0.0.1:{stranger.port}/"}
    return json.dumps(fields)


@pytest.mark.parametrize("double_wrapping", ["true", "false"])
@pytest.mark.parametrize("internally", ["true", "false"])
@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_the_kms_that_a_file_names_is_not_called(
    kms: KeyManagementClient,
    readers_kms: KeyManagementClient,
    tmp_path: Path,
    stranger: Stranger,
    read: Callable[[str, Any], object],
    internally: str,
    double_wrapping: str,
) -> None:
    factory = PropertiesDrivenCryptoFactory(kms)
    path = tmp_path / "rows.parquet"
    properties = {
        "parquet.encryption.uniform.key": "alias/orders",
        "parquet.encryption.key.material.store.internally": internally,
        "parquet.encryption.double.wrapping": double_wrapping,
    }
    keys = factory.encryption_keys(properties, location=str(path))
    if internally == "true":
        assert keys.footer_key_metadata is not None
        keys.footer_key_metadata = elsewhere(keys.footer_key_metadata, stranger).encode()
    else:
        beside = tmp_path / "_KEY_MATERIAL_FOR_rows.parquet.json"
        beside.write_text(json.dumps({name: elsewhere(each, stranger) for name, each in json.loads(beside.read_text()).items()}))
    write_table(ROWS, str(path), keys)

    reader = PropertiesDrivenCryptoFactory(readers_kms)
    read(str(path), reader.decryption_keys(str(path)))

    assert stranger.callers == 0


def test_rotating_does_not_call_it_and_does_not_keep_its_name(kms: KeyManagementClient, tmp_path: Path, stranger: Stranger) -> None:
    factory = PropertiesDrivenCryptoFactory(kms)
    path, beside = tmp_path / "rows.parquet", tmp_path / "_KEY_MATERIAL_FOR_rows.parquet.json"
    properties = {"parquet.encryption.uniform.key": "alias/orders", "parquet.encryption.key.material.store.internally": "false"}
    write_table(ROWS, str(path), factory.encryption_keys(properties, location=str(path)))
    beside.write_text(json.dumps({name: elsewhere(each, stranger) for name, each in json.loads(beside.read_text()).items()}))

    assert factory.rotate_master_keys(str(tmp_path)) == 1

    assert str(stranger.port) not in beside.read_text()
    assert read_table(str(path), factory.decryption_keys(str(path))) == ROWS
    assert stranger.callers == 0
