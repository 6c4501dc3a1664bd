"""Key bytes that cannot be printed, logged, compared in variable time, or pickled by accident.

Python cannot wipe memory that `cryptography` has copied, so this class promises only what it can hold: that key bytes leave it through
`reveal()` and nowhere else.
"""

from __future__ import annotations

import hmac
from typing import NoReturn


class Secret:
    """Immutable key bytes, shown as their length alone."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = bytes(value)

    def reveal(self) -> bytes:
        """Return the bytes. Call it where a cipher or an encoder needs them, never to store or show them."""
        return self._value

    @property
    def is_zero(self) -> bool:
        """Whether every byte is zero: an empty buffer or a placeholder, and the first key that an attacker tries."""
        return not any(self._value)

    def __len__(self) -> int:
        return len(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        # In constant time: the time of a comparison must not tell how many first bytes of a guess are right.
        return hmac.compare_digest(self._value, other._value)

    def __hash__(self) -> int:
        raise TypeError("a Secret is not hashable: a hash would reveal something about the key")

    def __repr__(self) -> str:
        return f"Secret({len(self._value)} bytes)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __bytes__(self) -> NoReturn:
        raise TypeError("a Secret is not converted to bytes implicitly: call reveal()")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is never pickled: wrap it under a key of the other side instead")
