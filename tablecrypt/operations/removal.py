"""Operations that remove for good: rows, keys and files."""

from __future__ import annotations

from typing import Final

from tablecrypt.operations.declaration import BREAK_SHARES, DELETE_BELOW, Operation, Option
from tablecrypt.operations.rights import Rights

OPERATIONS: Final = (
    Operation(
        "erase",
        """Erase rows from a table and its history, and prove it.

    The rows that --where matches are deleted from every branch of TABLE. Files that still store them are rewritten, tags move to snapshots
    without them, and the snapshots that held them go, with their files and keys. Then all that is left is decrypted and searched. It cannot
    be undone: time travel to those snapshots ends.

    Run it again to continue an interrupted run, or if others wrote meanwhile. The report says which copies it cannot reach.
    """,
        options={
            "row_filter": Option('The rows to erase, such as "customer_id = 7".', "FILTER", flags=("--where",), is_required=True),
            "certificates": Option(
                "Write what was erased and what was proved to a file, .html or .json; it holds no value of a row. Repeatable.",
                "FILE",
                flags=("--certificate",),
                is_repeatable=True,
            ),
            "delete_below": DELETE_BELOW,
            "break_shares": BREAK_SHARES,
        },
        examples=(
            ("What would be erased", 'tablecrypt --catalog prod erase db.people --where "customer_id = 7" --dry-run'),
            (
                "Erase, with a certificate",
                'tablecrypt --catalog prod erase db.people --where "customer_id = 7" --yes '
                "--certificate erased.html --certificate erased.json",
            ),
        ),
        rights=Rights(
            needs="unwrap table, wrap table, read metadata, write metadata, list metadata, list data, write data",
            due="wrap column",
            more="unwrap column, delete metadata, read data, delete data",
        ),
        found="not complete: something of such rows is left, or could not be searched or deleted; the report says what",
        on_files=True,
        asks=True,
    ),
    Operation(
        "shred",
        """Destroy the keys of snapshots, of a whole table, or of a column.

    Rows that were deleted from TABLE can be read in older snapshots for as long as the keys of those exist. Removes the keys from the table
    and from every metadata file that can still be read, and the KEK that opened them. It cannot be undone. The report says what copies
    elsewhere would still open.

    With --column the values of one protected column become unreadable in all snapshots, and all else stays.
    """,
        options={
            "snapshots": Option("A snapshot, in the table or expired; repeatable.", "ID", flags=("--snapshot",), is_repeatable=True),
            "all_but_heads": Option("Every snapshot that no branch or tag points to."),
            "whole_table": Option("Shred the whole table: repeat its name here. --dry-run does not need the name.", "NAME", alone=""),
            "column": Option("Shred one protected column, in every file of every snapshot.", "NAME"),
            "replace_heads": Option(
                "Replace branch heads that hold keys of files they deleted by snapshots with the same rows, and shred those heads too."
            ),
            "delete_below": DELETE_BELOW,
            "break_shares": BREAK_SHARES,
        },
        examples=(
            (
                "What would be destroyed, and what left",
                "tablecrypt --catalog prod shred db.orders --all-but-heads --replace-heads --dry-run",
            ),
            ("History: every snapshot but the newest", "tablecrypt --catalog prod shred db.orders --all-but-heads --replace-heads --yes"),
            ("Two snapshots", "tablecrypt --catalog prod shred db.orders --snapshot 4358109269873137077 --snapshot 71 --yes"),
            ("The whole table", "tablecrypt --catalog prod shred db.orders --whole-table db.orders --yes"),
            ("One protected column, in all snapshots", "tablecrypt --catalog prod shred db.people --column ssn --yes"),
        ),
        rights=Rights(
            needs="unwrap table, wrap table, read metadata, write metadata, list metadata",
            more="delete metadata",
        ),
        needs="With --column, to wrap with no key.",
        found="not complete: something is left, refused, not found or still opened, or nothing became unreadable",
        asks=True,
    ),
    Operation(
        "shred_column",
        called="shred",
        rights=Rights(
            needs="read metadata, write metadata, list metadata",
            more="unwrap table, unwrap column, delete metadata",
        ),
    ),
    Operation(
        "remove_orphan_files",
        """Find and remove files that do not belong to the table.

    They are in the folder of TABLE, left by failed and cancelled writes and by expired snapshots. --older-than must be longer ago than the
    longest write takes. Do not use it if the folder holds files of another table.
    """,
        called="orphans",
        options={
            "older_than": Option("Only files last written before a date, or before an age such as 7d; by default 3d.", "MOMENT"),
            "folder": Option("Only files below this folder, which is the table's location or lies below it.", "LOCATION"),
            "despite_other_prefixes": Option(
                "Treat a file as an orphan even if the table has a file with the same path in another store, bucket or host."
            ),
            "delete_below": DELETE_BELOW,
            "break_shares": BREAK_SHARES,
        },
        examples=(
            ("Find", "tablecrypt --catalog prod orphans db.orders --dry-run"),
            ("Remove what is older than a week, in a nightly job", "tablecrypt --catalog prod orphans db.orders --older-than 7d --yes"),
        ),
        rights=Rights(
            needs="unwrap table, read metadata, list data",
            more="delete data",
        ),
        found="a file could not be deleted; the report says why",
        asks=True,
        procedure=False,
    ),
)
