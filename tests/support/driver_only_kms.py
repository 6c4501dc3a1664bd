"""AWS KMS for one process alone: what a cluster's executors have that were given no rights to the master key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from tablecrypt.errors import KmsAccessDeniedError
from tablecrypt.kms.aws import AwsKeyManagementClient

_PROCESS: Final = "test.kms.process"
_KEY: Final = "test.kms.refused-key"


class DriverOnlyKms(AwsKeyManagementClient):
    """Refuses to unwrap in every process but the one that the properties name: with every master key, or the one that they name."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        self._process = int(properties[_PROCESS])
        self._key = properties.get(_KEY)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        if os.getpid() != self._process and self._key in (None, wrapping_key_id):
            raise KmsAccessDeniedError(f"this process may not decrypt with {wrapping_key_id}")
        return super().unwrap_key(wrapped_key, wrapping_key_id)


def for_this_process(properties: Mapping[str, str], refused_key: str | None = None) -> dict[str, str]:
    """A catalog's properties, with AWS KMS that refuses other processes every master key, or one."""
    kept = {name: value for name, value in properties.items() if name != "encryption.kms-type"}
    refused = {} if refused_key is None else {_KEY: refused_key}
    return kept | {"encryption.kms-impl": f"{__name__}.{DriverOnlyKms.__name__}", _PROCESS: str(os.getpid())} | refused
