"""Properties that make the protection of the column ssn weaker, as somebody commits them past tablecrypt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.edited_metadata import edit_json
from tests.support.protected_tables import COLUMN_KEY, OTHER_COLUMN_KEY, SSN
from tests.support.tables import encrypted_table, metadata_of, metadata_path

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


def without_any_protection(catalog: EncryptedSqlCatalog, name: str = "db.people") -> EncryptedTable:
    """The table to a client that sees it first after somebody has taken all that is of protected columns out of its metadata file."""
    table = catalog.load_table(name)
    of_columns = {entry.key_id for entry in metadata_of(table).key_ring.entries if entry.is_of_columns}

    def edit(metadata: dict[str, Any]) -> None:
        metadata["properties"] = {key: value for key, value in metadata["properties"].items() if not key.startswith("encryption.column")}
        metadata["encryption-keys"] = [entry for entry in metadata["encryption-keys"] if entry["key-id"] not in of_columns]

    edit_json(metadata_path(table), edit)
    catalog.forget_pin(name)
    return encrypted_table(catalog.load_table(name))
