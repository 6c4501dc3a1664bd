"""A key service over HTTP whose answer has no end fills no memory and holds nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tablecrypt.errors import KmsUnavailableError
from tablecrypt.hadoop_kms import HadoopKmsKeys
from tablecrypt.kms.resilient import RetryPolicy
from tablecrypt.kms.vault import VaultKeyManagementClient
from tests.support.unending_server import serving, without_an_end


def vault(uri: str) -> object:
    return VaultKeyManagementClient({"vault.url": uri, "vault.token": "t"}).wrap_key(bytes(16), "orders")


def hadoop_kms(uri: str) -> object:
    return HadoopKmsKeys(uri, user="etl", retry=RetryPolicy(budget_seconds=0)).current_version("pii")


@pytest.mark.parametrize("ask", [vault, hadoop_kms])
def test_an_answer_without_an_end_is_one_error(ask: Callable[[str], object]) -> None:
    with serving(lambda path: without_an_end()) as uri, pytest.raises(KmsUnavailableError, match="EndlessAnswerError"):
        ask(uri)
