"""The AWS client, and that of a keyring in memory, through something that changes what the key service answers to requests to unwrap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from tablecrypt.errors import KmsAccessDeniedError, KmsUnavailableError
from tablecrypt.kms.aws import AwsKeyManagementClient
from tablecrypt.kms.memory import MemoryKeyManagementClient

CLASS: Final = f"{__name__}.MisleadingKeyManagementClient"
MEMORY_CLASS: Final = f"{__name__}.MisleadingKeyring"

Answer = Callable[[bytes], Any]


def _denies(_: bytes) -> bytes:
    raise KmsAccessDeniedError("kms:Decrypt is missing")


def _is_down(_: bytes) -> bytes:
    raise KmsUnavailableError("nobody answers", retryable=False)


ANSWERS: Final[Mapping[str, Answer]] = {
    "another key": lambda key: b"attacker knows!!"[: len(key)],
    "a bit changed": lambda key: key[:-1] + bytes([key[-1] ^ 1]),
    "a longer key": lambda key: key + key,
    "half the key": lambda key: key[: len(key) // 2],
    "an empty key": lambda _: b"",
    "zeros": lambda key: bytes(len(key)),
    "a kilobyte": lambda _: bytes(1024),
    "text": lambda key: key.hex(),
    "a number": len,
    "nothing": lambda _: None,
    "a refusal": _denies,
    "no answer": _is_down,
}


class _Misleading:
    """Changes what it unwraps, for all its clients in this process, as long as it is told to."""

    answer: ClassVar[Answer | None] = None

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        key: bytes = super().unwrap_key(wrapped_key, wrapping_key_id)  # type: ignore[misc]
        answer = type(self).answer
        return key if answer is None else answer(key)


class MisleadingKeyManagementClient(_Misleading, AwsKeyManagementClient):
    """Between a caller and moto's KMS."""


class MisleadingKeyring(_Misleading, MemoryKeyManagementClient):
    """The same without a service."""
