"""Operations on what a table shares with others."""

from __future__ import annotations

from typing import Final

from tablecrypt.operations.declaration import Operation, Option
from tablecrypt.operations.rights import Rights

OPERATIONS: Final = (
    Operation(
        "shares",
        """List the live shares of a table.

    Shows of each share of TABLE to whom it goes, which rows, how many files, since when and where its metadata is. Nothing is changed.
    """,
        examples=(("What is shared", "tablecrypt --catalog prod shares db.orders"),),
        rights=Rights(needs="unwrap table, read metadata"),
        only_reads=True,
        has_progress=False,
        procedure=False,
    ),
    Operation(
        "unshare",
        """End a share of a table.

    Deletes the metadata of a share of TABLE, and forgets it. SHARE is its uuid or its location, as shares lists them. No file of TABLE is
    deleted; files that stayed for the share alone are orphans from then on. Run it again to continue an interrupted run.

    The partner may have kept the keys of the shared files: they open these files for good. The report says which files these are, and how
    to re-encrypt them; reencrypt --shared-with does it while the share lives.
    """,
        arguments={"table": "TABLE", "share": "SHARE"},
        options={
            "only_forget": Option(
                "Forget the share and delete nothing: its record is lost, or its folder cannot be reached. SHARE is a uuid."
            ),
        },
        examples=(
            (
                "What would go, and which files the partner has the keys of",
                "tablecrypt --catalog prod unshare db.orders s3://eu/orders --dry-run",
            ),
            (
                "Re-encrypt these files first",
                "tablecrypt --catalog prod reencrypt db.orders --shared-with 3f0c5a86-6e0f-5c1e-8d1c-2a9a4b3c1d5e",
            ),
            ("End the share", "tablecrypt --catalog prod unshare db.orders s3://eu/orders --yes"),
        ),
        rights=Rights(needs="unwrap table, read metadata, write metadata, delete metadata"),
        needs="Also to list, read and delete in the share's folder.",
        found="the share has not ended: not all of its metadata could be deleted; the report says why",
        has_progress=False,
        asks=True,
    ),
)
