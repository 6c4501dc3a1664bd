"""Masks: what stands unencrypted in the place of an encrypted column, for readers without its key.

    nullify      every value is null
    redact       letters, digits and dates by fixed ones (tablecrypt/orc/redact.py)
    sha256       text as the SHA-256 of its UTF-8, in upper-case hexadecimal; bytes as the 32 bytes of theirs
    keyed hash   the same with HMAC-SHA256 under a key of its own: without that key nobody can try out values

A mask keeps type and nulls. Below structs, lists and maps it works on each leaf, so the lengths of lists and maps stay visible; nullify
on a struct, list or map nullifies the whole. Hashes have no form for numbers and dates: beside text or bytes such leaves become null, and
a column that has no text or bytes at all is refused, since nullify says better what happens.

sha256 has no key: whoever guesses a value can check the guess. It is there because ORC has it; for identifiers take the keyed hash.

Raises ConfigurationError. Specification: Apache ORC v1, "Data Masks"; the masks are those of ORC's Java writer.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.types as pt
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError

MIN_HASH_KEY_LENGTH: Final = 16


class Mask(ABC):
    """A way to hide values. `name` and `parameters` are written into the file, for information."""

    name: ClassVar[str]

    @property
    def parameters(self) -> tuple[str, ...]:
        return ()

    def check(self, leaf_types: list[pa.DataType], column: str) -> None:  # noqa: B027 - most masks take every type
        """Raise ConfigurationError when the mask does nothing sensible for a column of these leaves."""

    @abstractmethod
    def apply(self, leaf: pa.Array) -> pa.Array:
        """Return an array of the same type and length. Leaves are arrays of a type that ORC has, and of no nested one."""


class Nullify(Mask):
    """Every value is null. The default."""

    name = "nullify"

    def apply(self, leaf: pa.Array) -> pa.Array:
        return pa.nulls(len(leaf), leaf.type)


class _HashMask(Mask):
    def check(self, leaf_types: list[pa.DataType], column: str) -> None:
        if not any(map(_is_hashable, leaf_types)):
            raise ConfigurationError(f"column {column!r} has no text or bytes that {self.name} could hash: mask it with nullify or redact")

    def apply(self, leaf: pa.Array) -> pa.Array:
        if pt.is_binary(leaf.type):
            return map_values(leaf, self.digest)
        if pt.is_string(leaf.type):
            return map_values(leaf, lambda text: self.digest(text.encode()).hex().upper())
        return pa.nulls(len(leaf), leaf.type)

    @abstractmethod
    def digest(self, value: bytes) -> bytes: ...


class Sha256(_HashMask):
    """Unkeyed: open to whoever can list the likely values."""

    name = "sha256"

    def digest(self, value: bytes) -> bytes:
        return hashlib.sha256(value).digest()


@dataclass(frozen=True, eq=False)
class KeyedHash(_HashMask):
    """HMAC-SHA256. Equal values have equal masks in all files under one key, so masked columns can still be joined.

    Args:
        key: 16 bytes or more, of which no reader needs to know anything. Keep it: new files need it to fit the older ones.
    """

    key: bytes | Secret = field(repr=False)
    name: ClassVar[str] = "hmac-sha256"

    def __post_init__(self) -> None:
        if len(self.key) < MIN_HASH_KEY_LENGTH:
            raise ConfigurationError(f"the key of a keyed hash has {MIN_HASH_KEY_LENGTH} bytes or more, not {len(self.key)}")
        if not isinstance(self.key, Secret):
            object.__setattr__(self, "key", Secret(self.key))

    @cached_property
    def _keyed(self) -> HMAC:
        assert isinstance(self.key, Secret)
        return HMAC(self.key.reveal(), SHA256())

    def digest(self, value: bytes) -> bytes:
        hashing = self._keyed.copy()
        hashing.update(value)
        return hashing.finalize()


def map_values(array: pa.Array, change: Callable[[Any], Any]) -> pa.Array:
    """Change each distinct value once. Nulls stay."""
    encoded = array.dictionary_encode()
    changed = pa.array([change(value) for value in encoded.dictionary.to_pylist()], array.type)
    return changed.take(encoded.indices)


def _is_hashable(leaf_type: pa.DataType) -> bool:
    return bool(pt.is_string(leaf_type) or pt.is_binary(leaf_type))
