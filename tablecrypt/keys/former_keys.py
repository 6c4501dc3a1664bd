"""The former master key of a protected column, and up to which file it counts.

    encryption.column.8.former-key-id = alias/old
    encryption.column.8.former-until = 41         the greatest data sequence number of a file that may hold the column under that key

Who may use the former key can go on writing hidden columns under it, and whoever commits chooses the files. So a younger file is refused.
A file keeps its data sequence number when it is encrypted again in its place, and rows that are written anew are under the column's key.

A column that is protected no more has no end: a younger file may come from a writer who began before, and values in the clear can be
written by everybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tablecrypt.errors import ConfigurationError

FORMER_KEY_ID: Final = "former-key-id"
FORMER_UNTIL: Final = "former-until"
_LONGEST_NUMBER: Final = 18


@dataclass(frozen=True)
class FormerKey:
    """A master key under which files from before hold a column.

    Attributes:
        key_id: the master key's.
        until: the greatest data sequence number of such a file; None where the table does not say, so that none is believed.
    """

    key_id: str
    until: int | None = None

    def opens(self, sequence_number: int | None) -> bool:
        """Whether a file may be under it.

        Args:
            sequence_number: the file's data sequence number; None where it is not known, which no file from before is.
        """
        # Fail closed: a file whose age is not known may have been made after the change of keys.
        return self.until is not None and sequence_number is not None and sequence_number <= self.until

    def to_properties(self, prefix: str) -> dict[str, str]:
        """Return the properties that say so, with names that begin so."""
        until = {} if self.until is None else {f"{prefix}{FORMER_UNTIL}": str(self.until)}
        return {f"{prefix}{FORMER_KEY_ID}": self.key_id, **until}


def sequence_number_in(name: str, text: str) -> int:
    """Return the sequence number in a property.

    Raises:
        ConfigurationError: there is none.
    """
    # int() takes more: signs, spaces, underscores and digits of other scripts.
    if not text.isascii() or not text.isdigit() or len(text) > _LONGEST_NUMBER:
        raise ConfigurationError(f"{name} is {text[:24]!r}; it must be a sequence number of the table")
    return int(text)
