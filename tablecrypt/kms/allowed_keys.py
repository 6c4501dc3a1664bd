"""Which master keys a client may name to a key service: the one place that decides it.

    encryption.allowed-key-ids = alias/orders, arn:aws:kms:eu-central-1:111122223333:key/*

Metadata of a table, key material of a Parquet file and the tail of an ORC file name master keys, and none of them is authenticated before a
key is there. An attacker who writes them may name another key, which this client's credentials happen to be good for: then what the
attacker forged opens, and the attacker reads what is written next. With a list, such a key is refused before the key service is asked.

Globs are compared with the whole id as it is written, upper and lower case apart: `*` is any text, slashes and colons too, `?` one
character, `[ab]` one of these. An alias and the ARN behind it are two ids. Without a list every id is allowed, and the key service alone
decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Self

from tablecrypt.arguments import names_of
from tablecrypt.errors import ConfigurationError, MasterKeyRefusedError
from tablecrypt.properties import ALLOWED_KEY_IDS

_WILDCARDS: Final = frozenset("*?[")


@dataclass(frozen=True)
class AllowedKeys:
    """The master keys that may be named. None for `globs` stands for every key.

    Raises:
        ConfigurationError: a list without a glob, which would allow nothing, or with an empty one.
    """

    globs: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        # A list that was left empty by mistake is an error at once, not a refusal of every table later.
        if self.globs is not None and (not self.globs or not all(self.globs)):
            raise ConfigurationError(f"{ALLOWED_KEY_IDS.name} has an empty entry: name master keys, or leave it out to allow every key")

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Self:
        """Return what the properties of a catalog say."""
        if ALLOWED_KEY_IDS.name not in properties:
            return cls()
        return cls(tuple(glob.strip() for glob in str(properties[ALLOWED_KEY_IDS.name]).split(",")))

    @classmethod
    def listed(cls, globs: str | Iterable[str] | None) -> Self:
        """Return what an argument says: globs, a single one, or None for every key."""
        return cls(None if globs is None else names_of("allowed_key_ids", globs))

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The entries that are ids of keys: those without a wildcard."""
        return tuple(glob for glob in self.globs or () if not _WILDCARDS.intersection(glob))

    def allows(self, key_id: str) -> bool:
        """Whether the id is that of a key which may be named."""
        # fnmatchcase, because fnmatch ignores case on some systems and ids of keys differ by case.
        return self.globs is None or any(fnmatchcase(key_id, glob) for glob in self.globs)

    def check(self, key_ids: Iterable[str | None], where: str) -> None:
        """Refuse master keys that are not allowed.

        Args:
            key_ids: the ids; None, for an entry that names none, is passed over.
            where: what names them, for the message.

        Raises:
            MasterKeyRefusedError: one of them is not allowed.
        """
        for key_id in key_ids:
            if key_id is not None and not self.allows(key_id):
                raise MasterKeyRefusedError(key_id, where)
