"""Operations on the KEKs and entries of encryption-keys in a table's metadata."""

from __future__ import annotations

from typing import Final

from tablecrypt.operations.declaration import GLOBS, MANIFESTS_BELOW, SEVERAL, TABLE_FAILED, Operation, Option
from tablecrypt.operations.rights import Rights

OPERATIONS: Final = (
    Operation(
        "rotate_kek",
        """Replace the KEK of a table.

    Wraps the manifest-list key of every snapshot of TABLE under a new KEK and removes the old KEKs, in one metadata commit. No file is read
    or written. Data keys do not change (see reencrypt), older metadata files keep the old KEK (see shred), and the master key keeps its
    version (see rewrap).
    """,
        arguments=SEVERAL,
        options={
            **GLOBS,
            "columns": Option("Rotate the KEKs of protected columns instead of the table's."),
        },
        examples=(
            ("What would change", "tablecrypt --catalog prod rotate-kek db.orders --dry-run"),
            ("Rotate", "tablecrypt --catalog prod rotate-kek db.orders"),
            ("Every table of a namespace but one", "tablecrypt --catalog prod rotate-kek --include 'db.*' --exclude db.archive"),
        ),
        rights=Rights(needs="unwrap table, wrap table, read metadata, write metadata"),
        needs="With --columns, with the columns' master keys instead.",
        found=TABLE_FAILED,
    ),
    Operation(
        "rotate_column_keks",
        called="rotate-kek",
        rights=Rights(needs="unwrap column, wrap column, read metadata, write metadata"),
    ),
    Operation(
        "rewrap",
        """Rewrap the KEKs under the newest version of the master key.

    Run it before an old version of TABLE's master key is disabled, or after its alias was moved to another key. The KEKs do not change, nor
    does anything under them. Older metadata files keep the KEKs as the old version wrapped them.
    """,
        arguments=SEVERAL,
        options={
            **GLOBS,
            "from_key_id": Option("The master key that wraps the KEKs now, if its alias was moved.", "KEY"),
            "columns": Option("Wrap the KEKs of protected columns again instead of the table's."),
            "manifests_below": MANIFESTS_BELOW,
        },
        examples=(
            ("After the master key was rotated in the key service", "tablecrypt --catalog prod rewrap db.orders"),
            ("After an alias was moved to another key", "tablecrypt --catalog prod rewrap db.orders --from-key-id 1234abcd-12ab-34cd"),
            ("Every table of the catalog", "tablecrypt --catalog prod rewrap --include '*'"),
        ),
        rights=Rights(needs="unwrap table, wrap table, read metadata, write metadata"),
        needs=(
            "On AWS, kms:ReEncryptFrom and kms:ReEncryptTo take the place of wrapping. With --columns, with the columns' master keys "
            "instead."
        ),
        found=TABLE_FAILED,
    ),
    Operation(
        "rewrap_column_keks",
        called="rewrap",
        rights=Rights(needs="unwrap column, wrap column, read metadata, write metadata"),
    ),
    Operation(
        "prune_keys",
        """Remove keys that no snapshot needs.

    Iceberg Java never removes an entry of encryption-keys, so the metadata of TABLE grows with every commit. Pruning makes nothing
    unreadable: older metadata files still hold the entries (see shred).
    """,
        examples=(("After Iceberg Java expired snapshots", "tablecrypt --catalog prod prune-keys db.orders"),),
        rights=Rights(needs="read metadata, write metadata"),
        needs="The key service is not asked.",
        has_progress=False,
    ),
)
