"""Operations that rewrite or copy the files of a table, or repair its metadata."""

from __future__ import annotations

from typing import Final

from tablecrypt.operations.declaration import DELETE_BELOW, MANIFESTS_BELOW, Operation, Option
from tablecrypt.operations.rights import Rights

OPERATIONS: Final = (
    Operation(
        "reencrypt",
        """Re-encrypt data files under fresh keys.

    Data and delete files of TABLE are decrypted and encrypted module by module, without decoding a value, and replace the old ones in one
    snapshot. Row ids, statistics and the order of rows do not change. Run it again to continue an interrupted run. Older snapshots name the
    old files until they are expired. Protected columns become what the properties declare; where you may not use a column's key, the column
    stays as it is, and all else comes under fresh keys.
    """,
        options={
            "where": Option("Only data files that may hold rows which pass this filter.", "FILTER"),
            "older_than": Option("Only files whose keys were made before a date, or before an age such as 730d.", "MOMENT"),
            "data_key_length": Option("Length of the new keys in bytes; by default what the table says.", "[16|24|32]"),
            "branch": Option("The branch whose files are rewritten.", "TEXT", default="main"),
            "out_of_line": Option("Only data files whose protected columns are not as the table's properties declare."),
            "files": Option("Only the data file at this location; repeatable.", "LOCATION", flags=("--file",), is_repeatable=True),
            "shared_with": Option("Only files that a live share names, by its uuid.", "UUID"),
            "accept_masks": Option("Protect a column also where all values that another engine wrote look like its mask."),
        },
        examples=(
            ("Files whose keys are older than two years", "tablecrypt --catalog prod reencrypt db.orders --older-than 730d"),
            (
                "What a partner has the keys of",
                "tablecrypt --catalog prod reencrypt db.orders --shared-with 3f0c5a86-6e0f-5c1e-8d1c-2a9a4b3c1d5e",
            ),
            ("Files that a declaration of column keys has not reached", "tablecrypt --catalog prod reencrypt db.people --out-of-line"),
            (
                "One partition, with longer keys",
                "tablecrypt --catalog prod reencrypt db.orders --where \"region = 'north'\" --data-key-length 32",
            ),
        ),
        rights=Rights(
            needs="unwrap table, read metadata, write metadata, list metadata, delete metadata, read data, write data",
            due="wrap table, wrap column",
            more="unwrap column",
        ),
        on_files=True,
    ),
    Operation(
        "migrate",
        """Encrypt a plaintext table.

    Every live file of TABLE is encrypted into a new file, without decoding a value, and one commit replaces the plain files by the
    encrypted ones. The table's history and its plaintext files are deleted. With --into both stay, and the encrypted table is a new one.
    Run it again to continue an interrupted run. The report lists every place where plaintext may remain. Files outside TABLE's folder stay
    as they are, unless --delete-below names their folder.
    """,
        options={
            "key_id": Option("The master key: the table's encryption.key-id from now on.", "TEXT", is_required=True),
            "properties": Option(
                "A further table property, such as encryption.data-key-length=32.", "NAME=VALUE", flags=("--set",), is_repeatable=True
            ),
            "into": Option("Make a new table of this name, and leave the plain one as it is.", "NAME"),
            "location": Option("Location of the new table; by default beside the plain table's.", "TEXT"),
            "drop_refs": Option("Drop other branches and tags, which would keep plaintext snapshots."),
            "keep_plaintext": Option("Do not delete the plaintext files after the commit."),
            "delete_below": DELETE_BELOW,
        },
        examples=(
            ("What would be encrypted", "tablecrypt --catalog prod migrate db.orders --key-id alias/orders --dry-run"),
            ("Migrate in place", "tablecrypt --catalog prod migrate db.orders --key-id alias/orders --yes"),
            ("Into a new table", "tablecrypt --catalog prod migrate db.orders --key-id alias/orders --into db.encrypted_orders"),
        ),
        rights=Rights(
            needs=(
                "unwrap table, wrap table, read metadata, write metadata, list metadata, delete metadata, read data, write data, "
                "list data, delete data"
            )
        ),
        on_files=True,
        asks=True,
        procedure=False,
    ),
    Operation(
        "compact",
        """Merge small files and apply deletes.

    Small files of TABLE, and files with many deleted rows, are rewritten as files of the right size under fresh keys. What is below
    --min-input-files and --delete-ratio stays as it is: a few deleted rows are hidden from readers then, and still stored, unless
    --apply-deletes is given. Rows keep their ids. Older snapshots keep the old files until they are expired.
    """,
        options={
            "where": Option("Only files that may hold rows which pass this filter.", "FILTER"),
            "target_file_size": Option("Size of new files; by default write.target-file-size-bytes.", "BYTES"),
            "min_input_files": Option("Leave short files of a partition that has fewer of them.", "N", default=5),
            "delete_ratio": Option("Leave the deletes of a file in which a smaller share of the rows is deleted.", "X", default=0.3),
            "delete_files": Option("Rewrite also files that have N delete files or more.", "N"),
            "apply_deletes": Option("Rewrite also every file of which any row is deleted, however few they are."),
            "rewrite_all": Option("Rewrite every file that --where selects."),
            "sort_by": Option("Order the rows of each group; repeatable.", "COLUMN", is_repeatable=True),
            "partial_progress": Option("Commit after every N groups, not once at the end.", "N"),
            "branch": Option("The branch whose files are rewritten.", "TEXT", default="main"),
        },
        examples=(
            ("What is worth rewriting", "tablecrypt --catalog prod compact db.orders --dry-run"),
            ("One partition, ordered", "tablecrypt --catalog prod compact db.orders --where \"day = '2024-02-29'\" --sort-by id"),
            ("Rows that were deleted leave every file", "tablecrypt --catalog prod compact db.orders --apply-deletes"),
        ),
        rights=Rights(
            needs="unwrap table, unwrap column, read metadata, write metadata, read data, write data",
            due="wrap table, wrap column",
        ),
        on_files=True,
        procedure=False,
    ),
    Operation(
        "rescue",
        """Recover lost keys from older metadata.

    Helps if another tool wrote the metadata of TABLE and dropped entries of encryption-keys. Searches the metadata files that the table
    left behind, and those given. It cannot replace a lost master key, and does not know whether a key was removed on purpose.
    """,
        options={
            "metadata": Option("A metadata file that may hold the keys; repeatable.", "LOCATION", is_repeatable=True),
            "expire_lost": Option("Remove snapshots whose keys cannot be found."),
        },
        examples=(
            ("What can be brought back", "tablecrypt --catalog prod rescue db.orders --dry-run"),
            ("From a metadata file of a backup", "tablecrypt --catalog prod rescue db.orders --metadata s3://backup/00041-a.metadata.json"),
        ),
        rights=Rights(needs="unwrap table, read metadata, write metadata, list metadata"),
        asks=True,
    ),
    Operation(
        "relocate",
        """Copy a table to another location or master key.

    The copy of TABLE at LOCATION is a table of its own, which Iceberg Java can read. Paths in metadata, manifest lists and manifests are
    rewritten, and lists and manifests get fresh keys. Data files keep their keys (see reencrypt). The original does not change. Run it
    again to continue an interrupted run.
    """,
        arguments={"table": "TABLE", "location": "LOCATION"},
        options={
            "key_id": Option("The copy's master key; by default the table's.", "TEXT"),
            "register_as": Option("Register the copy under this name.", "NAME", flags=("--register-as", "--as")),
            "current_only": Option("Copy the current snapshot alone, not all of them."),
            "trust_lengths": Option("Do not compare the content of files that an earlier run copied, only their lengths."),
            "manifests_below": MANIFESTS_BELOW,
        },
        examples=(
            ("Into another bucket", "tablecrypt --catalog prod relocate db.orders s3://archive/orders"),
            (
                "Under another master key, and into the catalog",
                "tablecrypt --catalog prod relocate db.orders s3://lake-eu/orders --key-id alias/eu --as eu.orders",
            ),
        ),
        rights=Rights(
            needs="unwrap table, wrap table, read metadata, write metadata, list metadata, read data, write data, list data",
            more="unwrap column",
        ),
        needs="With --key-id, to wrap with the copy's master key; what is written is the copy.",
        on_files=True,
    ),
)
