"""A Hadoop KMS for real: Apache Ranger's, or Hadoop's own."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from tablecrypt import orc
from tablecrypt.errors import KeyNotFoundError, KmsAccessDeniedError
from tablecrypt.hadoop_kms import HadoopKmsKeys
from tablecrypt.kms.resilient import RetryPolicy
from tablecrypt.orc.key_providers import MasterKeyVersion

KEY = os.environ["TABLECRYPT_LIVE_HADOOP_KMS_KEY_ID"]


def _keys(user: str) -> HadoopKmsKeys:
    return HadoopKmsKeys(os.environ["TABLECRYPT_LIVE_HADOOP_KMS_URL"], user=user, retry=RetryPolicy(budget_seconds=0))


@pytest.fixture
def keys() -> HadoopKmsKeys:
    return _keys(os.environ["TABLECRYPT_LIVE_HADOOP_KMS_USER"])


def test_local_keys_open_again(keys: HadoopKmsKeys) -> None:
    master = keys.current_version(KEY)
    local = keys.create_local_key(master)
    assert keys.decrypt_local_key(master, local.encrypted) == local.key


def test_a_file_is_written_and_read(keys: HadoopKmsKeys) -> None:
    table, sink = pa.table({"id": [1, 2], "ssn": ["a", None]}), pa.BufferOutputStream()
    orc.write_table(table, sink, encrypt={KEY: ["ssn"]}, keys=keys)
    assert orc.read_table(sink.getvalue(), keys=keys).to_pylist() == table.to_pylist()


def test_unknown_keys_and_versions_are_not_found(keys: HadoopKmsKeys) -> None:
    known = keys.current_version(KEY)
    with pytest.raises(KeyNotFoundError):
        keys.current_version("tablecrypt-no-such-key")
    with pytest.raises(KeyNotFoundError):
        keys.decrypt_local_key(MasterKeyVersion(KEY, known.version + 1, known.length), bytes(known.length))


def test_a_user_without_rights_is_denied(keys: HadoopKmsKeys) -> None:
    master = keys.current_version(KEY)
    with pytest.raises(KmsAccessDeniedError):
        _keys("tablecrypt-nobody").decrypt_local_key(master, bytes(master.length))
