"""Operations that give rows of a table to other organisations."""

from __future__ import annotations

from typing import Final

from tablecrypt.operations.declaration import MANIFESTS_BELOW, Operation, Option
from tablecrypt.operations.rights import Rights

OPERATIONS: Final = (
    Operation(
        "share",
        """Share rows with a partner, who reads them with his own key.

    Data files of TABLE are shared as they are, and no byte of them is copied: new metadata at a location of its own names them, under the
    partner's master key. Only files are shared of which every row matches, as partitions or bounds prove. The partner registers that
    metadata in a catalog of his. He can read no other file of the table. Protected columns are not shared but those that are named. The
    table remembers the share. The storage policy that he needs is printed, and never applied.
    """,
        options={
            "to_key_id": Option(
                "The partner's master key; or public-key: and the file of a public key that the partner sent.",
                "TEXT",
                flags=("--to",),
                is_required=True,
            ),
            "location": Option("Where the share's metadata goes: a folder of its own.", "LOCATION", is_required=True),
            "row_filter": Option("Which rows are shared; by default all, or with --update the share's.", "FILTER", flags=("--where",)),
            "snapshot": Option("The snapshot that is shared; by default the current one.", "ID"),
            "columns": Option(
                "A protected column that is shared, and the partner's second master key for it; repeatable. With --update by default the "
                "share's.",
                "COLUMN=KEY",
                flags=("--column",),
                is_repeatable=True,
            ),
            "no_statistics": Option("Give no bounds and counts of columns, by which the partner's scans would leave out files."),
            "rewrite": Option("Write the matching rows of files that also hold others once into the share's folder, under their own keys."),
            "without_columns": Option(
                "With --rewrite: a column that may not leave; repeatable.", "COLUMN", flags=("--without-column",), is_repeatable=True
            ),
            "update": Option("Bring the share at the location up to date: what came and what went since."),
            "manifests_below": MANIFESTS_BELOW,
        },
        examples=(
            (
                "What would be given away",
                "tablecrypt --catalog prod share db.orders --to alias/partner --where \"region = 'north'\" --location s3://partner/orders "
                "--dry-run",
            ),
            (
                "One region",
                "tablecrypt --catalog prod share db.orders --to alias/partner --where \"region = 'north'\" --location s3://partner/orders",
            ),
            (
                "With a protected column, under a second key of the partner's",
                "tablecrypt --catalog prod share db.people --to alias/partner --column salary=alias/partner-salary --location "
                "s3://partner/people",
            ),
            (
                "What came and went since",
                "tablecrypt --catalog prod share db.orders --to alias/partner --location s3://partner/orders --update",
            ),
        ),
        rights=Rights(
            needs="unwrap table, wrap table, read metadata, write metadata, list metadata, read data, write data, list data",
        ),
        needs=(
            "Also to wrap with the partner's master keys, unless it is a public key, and to unwrap with those of the columns named. "
            "What is written is the share, and the record of it in the table's metadata; what is listed is the share's folder. Footers are "
            "read where columns are protected; deletion vectors are read and written again."
        ),
        has_progress=False,
    ),
    Operation(
        "shares",
        """List the live shares of a table.

    Shows of each share of TABLE to whom it goes, which rows, how many files, since when and where its metadata is. Nothing is changed.
    """,
        examples=(("What is shared", "tablecrypt --catalog prod shares db.orders"),),
        rights=Rights(needs="unwrap table, read metadata"),
        only_reads=True,
        has_progress=False,
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
                "tablecrypt --catalog prod unshare db.orders s3://partner/orders --dry-run",
            ),
            (
                "Re-encrypt these files first",
                "tablecrypt --catalog prod reencrypt db.orders --shared-with 3f0c5a86-6e0f-5c1e-8d1c-2a9a4b3c1d5e",
            ),
            ("End the share", "tablecrypt --catalog prod unshare db.orders s3://partner/orders --yes"),
        ),
        rights=Rights(needs="unwrap table, read metadata, write metadata, list metadata, list data", more="delete metadata, delete data"),
        needs="What is listed and deleted is in the share's folder, and so is the mark that is written there while it ends.",
        found="the share has not ended: not all of its metadata could be deleted; the report says why",
        has_progress=False,
        asks=True,
    ),
    Operation(
        "accept_update",
        """Move a share that you have registered to its next state.

    For whom rows are shared with: TABLE is the share, as your catalog has it, and METADATA the location of its new state, as the one who
    shares has sent it. One commit puts that in the place of the state before. Another share's metadata is refused, and so are an older
    state and one that somebody has edited. Not for a REST catalog, whose protocol has no such commit.
    """,
        arguments={"table": "TABLE", "metadata_location": "METADATA"},
        options={"key_file": Option("The private key, for a share that is sealed to your public key.", "FILE", kind="TEXT")},
        examples=(
            (
                "The rows that came since",
                "tablecrypt --catalog prod accept-update db.shared "
                "s3://partner/orders/metadata/00001-3f0c5a86-6e0f-4c1e-8d1c-2a9a4b3c1d5e.metadata.json",
            ),
        ),
        rights=Rights(needs="unwrap table, read metadata, write metadata"),
        needs="To read the share's metadata; for a sealed share also to wrap with the table's master key.",
        has_progress=False,
    ),
)
