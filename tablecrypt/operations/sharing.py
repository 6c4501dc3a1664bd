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
    metadata in a catalog of his. He can read no other file of the table. Protected columns are not shared. The table remembers the share.
    The storage policy that he needs is printed, and never applied.
    """,
        options={
            "to_key_id": Option("The partner's master key.", "TEXT", flags=("--to",), is_required=True),
            "location": Option("Where the share's metadata goes: a folder of its own.", "LOCATION", is_required=True),
            "row_filter": Option("Which rows are shared; by default all, or with --update the share's.", "FILTER", flags=("--where",)),
            "snapshot": Option("The snapshot that is shared; by default the current one.", "ID"),
            "no_statistics": Option("Give no bounds and counts of columns, by which the partner's scans would leave out files."),
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
                "What came and went since",
                "tablecrypt --catalog prod share db.orders --to alias/partner --location s3://partner/orders --update",
            ),
        ),
        rights=Rights(
            needs="unwrap table, wrap table, read metadata, write metadata, list metadata, read data, write data",
        ),
        needs=(
            "Also to wrap with the partner's master key. What is written is the share, and the record of it in the table's metadata. Of "
            "data files, footers are read where columns are protected; deletion vectors are read and written again."
        ),
        has_progress=False,
    ),
)
