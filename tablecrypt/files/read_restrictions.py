"""What a catalog's server restricts of a table's rows, as the table's FileIO carries it.

Every reader of rows gets the table's FileIO: scans, transactions, their pickled copies, Spark's executors. So the restrictions travel with
it, and no reader can be built without them. What they mean is the matter of `tablecrypt.table.restrictions.read_restrictions`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Final

_SALT_BYTES: Final = 32


@dataclass(frozen=True)
class ReadRestrictions:
    """Restrictions that are not empty.

    Attributes:
        text: the `read-restrictions` object of the server's answer, as JSON.
        salt: what sha-256-query-local hashes before each value; None until a query begins.
    """

    text: str
    salt: bytes | None = None

    def of_query(self) -> ReadRestrictions:
        """Return these restrictions with a salt: their own where a query has begun, else a new random one."""
        return self if self.salt is not None else replace(self, salt=secrets.token_bytes(_SALT_BYTES))
