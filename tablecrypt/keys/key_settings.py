"""What a table's properties say about the keys made for it: their length, and how long a KEK wraps.

encryption.data-key-length    bytes of every DEK and KEK: 16 (default), 24 or 32
encryption.kek-lifespan-ms    1 to 63072000000, which is 730 days and the default
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from tablecrypt import properties as names
from tablecrypt.crypto.aes_gcm import KEY_LENGTHS
from tablecrypt.errors import ConfigurationError

DEFAULT_DATA_KEY_LENGTH: Final = names.DATA_KEY_LENGTH.default_number
DEFAULT_KEK_LIFESPAN_MS: Final = names.KEK_LIFESPAN_MS.default_number
"""NIST SP 800-57 part 1, section 5.3.6: two years is the upper bound for a symmetric key-wrapping key's originator period."""


@dataclass(frozen=True)
class KeySettings:
    """Lengths and lifespans that may be used.

    Raises:
        ConfigurationError: one that may not.
    """

    data_key_length: int = DEFAULT_DATA_KEY_LENGTH
    kek_lifespan_ms: int = DEFAULT_KEK_LIFESPAN_MS

    def __post_init__(self) -> None:
        if self.data_key_length not in KEY_LENGTHS:
            raise ConfigurationError(f"{names.DATA_KEY_LENGTH.name} is {self.data_key_length}; it must be 16, 24 or 32 bytes")
        if not 0 < self.kek_lifespan_ms <= DEFAULT_KEK_LIFESPAN_MS:
            raise ConfigurationError(
                f"{names.KEK_LIFESPAN_MS.name} is {self.kek_lifespan_ms}; it must be between 1 and {DEFAULT_KEK_LIFESPAN_MS} (730 days)"
            )

    @classmethod
    def of(cls, table_properties: Mapping[str, object]) -> Self:
        """Return what a table's properties say."""
        return cls(names.DATA_KEY_LENGTH.whole_number(table_properties), names.KEK_LIFESPAN_MS.whole_number(table_properties))
