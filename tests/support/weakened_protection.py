"""Properties that make the protection of the column ssn weaker, as somebody commits them past tablecrypt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.support.protected_tables import COLUMN_KEY, OTHER_COLUMN_KEY, SSN

PREFIX: Final = f"encryption.column.{SSN}"
BY_HAND: Final[Mapping[str, tuple[dict[str, str], tuple[str, ...], str]]] = {
    "a mask that shows values": ({f"{PREFIX}.mask": "truncate(64)"}, (), rf"masked by null.*truncate\(64\).*{PREFIX}.mask"),
    "no protection": ({f"{PREFIX}.former-key-id": COLUMN_KEY}, (f"{PREFIX}.key-id", f"{PREFIX}.mask"), f"do not protect.*{PREFIX}.key-id"),
    "another master key": (
        {f"{PREFIX}.key-id": OTHER_COLUMN_KEY, f"{PREFIX}.former-key-id": COLUMN_KEY, f"{PREFIX}.former-until": "9"},
        (),
        f"was under master key 'pii'.*'fin'.*{PREFIX}.key-id",
    ),
    "another former master key": ({f"{PREFIX}.former-key-id": OTHER_COLUMN_KEY}, (), f"former master key 'fin'.*{PREFIX}.former-key-id"),
    "files without the protection": ({f"{PREFIX}.since": "9"}, (), f"up to sequence number 9.*{PREFIX}.since"),
}


"""By what it does: properties that are set, those that are removed, and what the error says where stored masks were null."""
