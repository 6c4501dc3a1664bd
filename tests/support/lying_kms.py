"""The AWS client, through something that changes what the key service answers to requests for new blobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from tablecrypt.errors import KmsAccessDeniedError
from tablecrypt.kms.aws import AwsKeyManagementClient
from tablecrypt.kms.client import GeneratedKey

CLASS = f"{__name__}.LyingKeyManagementClient"

Lie = Callable[[AwsKeyManagementClient, bytes, str], bytes]


def flipped(_: AwsKeyManagementClient, blob: bytes, __: str) -> bytes:
    """A bit fell over on the way."""
    return blob[:-1] + bytes([blob[-1] ^ 1])


def of_another_key(service: AwsKeyManagementClient, _: bytes, master_key: str) -> bytes:
    """A blob that opens, to a key that somebody else knows."""
    return service.wrap_key(b"attacker knows!!", master_key)


def cut(_: AwsKeyManagementClient, blob: bytes, __: str) -> bytes:
    """Half an answer."""
    return blob[: len(blob) // 2]


def empty(_: AwsKeyManagementClient, __: bytes, ___: str) -> bytes:
    """No answer at all."""
    return b""


LIES: Mapping[str, Lie] = {"flipped": flipped, "of another key": of_another_key, "cut": cut, "empty": empty}


class LyingKeyManagementClient(AwsKeyManagementClient):
    """Changes blobs, or refuses to unwrap, for all its clients in this process, as long as it is told to."""

    lie: ClassVar[Lie | None] = None
    denies_unwrapping: ClassVar[bool] = False
    last_key: ClassVar[bytes] = b""

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        type(self).last_key = key
        return self._changed(super().wrap_key(key, wrapping_key_id), wrapping_key_id)

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        generated = super().generate_key(wrapping_key_id, length)
        return GeneratedKey(generated.key, self._changed(generated.wrapped_key, wrapping_key_id))

    def rewrap_key(self, wrapped_key: bytes, wrapping_key_id: str, from_key_id: str) -> bytes:
        return self._changed(super().rewrap_key(wrapped_key, wrapping_key_id, from_key_id), wrapping_key_id)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        if self.denies_unwrapping:
            raise KmsAccessDeniedError(f"kms:Decrypt is missing on {wrapping_key_id}")
        return super().unwrap_key(wrapped_key, wrapping_key_id)

    def _changed(self, blob: bytes, master_key: str) -> bytes:
        lie = type(self).lie
        if lie is None:
            return blob
        type(self).lie = None
        try:
            return lie(self, blob, master_key)
        finally:
            type(self).lie = lie
