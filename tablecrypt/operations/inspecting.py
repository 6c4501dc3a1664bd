"""Operations that look at a table and leave it as it is."""

from __future__ import annotations

from typing import Final

from tablecrypt.operations.declaration import GLOBS, SEVERAL, Operation, Option
from tablecrypt.operations.rights import Rights

OPERATIONS: Final = (
    Operation(
        "list_tables",
        """List the tables of a catalog.

    Shows the tables and views of NAMESPACE and of the namespaces nested in it, or of the whole catalog, with a lock beside each encrypted
    table. To know which are encrypted, the metadata of each table is loaded, several at a time. A table that cannot be loaded is shown with
    the reason, and the others follow.
    """,
        called="list",
        arguments={"namespace": "[NAMESPACE]"},
        options={
            "quick": Option("Show names alone: load no table, so that nothing says which are encrypted."),
        },
        examples=(
            ("All that the catalog has", "tablecrypt --catalog prod list"),
            ("One namespace", "tablecrypt --catalog prod list db"),
            ("Names alone, for a script", "tablecrypt --catalog prod list --quick --json"),
        ),
        rights=Rights(more="read metadata"),
        needs="The key service is not asked.",
        found="a namespace could not be listed, or a table could not be loaded; the list says why",
        only_reads=True,
        has_progress=False,
        procedure=False,
    ),
    Operation(
        "describe",
        """Describe a table: its columns, keys, snapshots and size.

    Shows of TABLE, encrypted or plain, what its metadata says: columns with field ids and documentation, which of them are protected by
    master keys of their own and how they are masked, partitioning, sort order, properties, branches, tags, snapshots and KEKs. Values that
    look like secrets are not shown. The size is read from the manifests of the current snapshot.
    """,
        options={
            "snapshots": Option("Show this many of the newest snapshots.", "N", kind="N or 0", default=10),
        },
        examples=(
            ("A table", "tablecrypt --catalog prod describe db.orders"),
            ("With all of its snapshots, for a program", "tablecrypt --catalog prod describe db.orders --snapshots 100000 --json"),
        ),
        rights=Rights(needs="read metadata", more="unwrap table"),
        found="a part could not be read, such as the size without the table's key; the description says which and why",
        only_reads=True,
        has_progress=False,
        procedure=False,
    ),
    Operation(
        "doctor",
        """Check whether everything works.

    Loads the catalog and says first whether it refuses plaintext. Lets the key service wrap and unwrap a random probe under each master
    key that TABLE or the configuration names, those of columns too, and opens TABLE's newest KEKs. Lists and reads the table's folder, and
    writes, reads back and deletes a probe there, an encrypted file of random bytes. Also checks pins, versions and Java. Reports what
    works, what does not, what was not tried, and what to do about it. No table is changed.
    """,
        arguments={"table": "[TABLE]"},
        options={
            "key_ids": Option("Another master key to try besides the table's; repeatable.", "KEY", flags=("--key-id",), is_repeatable=True),
            "read_only": Option("Wrap nothing and write nothing."),
        },
        examples=(
            ("Before the first table", "tablecrypt --catalog prod doctor --key-id alias/orders"),
            ("When a job cannot write", "tablecrypt --catalog prod doctor db.orders"),
            ("With a reader's rights", "tablecrypt --catalog prod doctor db.orders --read-only"),
        ),
        rights=Rights(
            more=(
                "unwrap table, wrap table, unwrap column, wrap column, read metadata, write metadata, list metadata, delete metadata, "
                "read data, write data, delete data"
            )
        ),
        needs="What is missing it reports.",
        found="something does not work; the report says what to do",
        only_reads=True,
        has_progress=False,
        procedure=False,
    ),
    Operation(
        "audit",
        """Find plaintext and neglected keys.

    Examines TABLE, the tables that a GLOB such as 'db.*' matches, or every table of the catalog: its metadata, manifests and files, older
    metadata, and everything else in its folder. Reports for each file how it is encrypted, under which KEK, and the length and age of its
    key. Finds plaintext in data, statistics, orphans and older metadata, keys near or past the end of their life, snapshots without a key,
    keys without a snapshot, and tables without a pin.

    Of data files, only the first bytes and the end of Parquet files are read; verify authenticates whole files. Nothing is changed.
    """,
        arguments=SEVERAL,
        options={
            "html_file": Option(
                "Write the report to this file, as one HTML page that needs no server and no network.", "FILE", flags=("--html",)
            ),
            "bundle_file": Option(
                (
                    "Write the report to this new file, as a zip to hand over: pages, JSON, the result of each requirement, and "
                    "hashes. Prints the SHA-256 of the zip, with --json on stderr."
                ),
                "FILE",
                flags=("--bundle",),
                kind="new file",
            ),
            "force": Option("Replace the file of --bundle if it exists."),
            "since_file": Option(
                "Also report what changed since an earlier audit. FILE is the JSON of that audit.",
                "FILE",
                flags=("--since",),
                kind="existing file",
            ),
            "fail_on": Option(
                "Exit with code 1 if there are findings of at least this severity.", "[critical|error|warning|info]", default="error"
            ),
            **GLOBS,
        },
        examples=(
            ("One table", "tablecrypt --catalog prod audit db.orders"),
            (
                "Every table of the catalog, as a page to keep and as JSON for the next audit",
                "tablecrypt --catalog prod audit --html may.html --json > may.json",
            ),
            ("A month later, with what changed", "tablecrypt --catalog prod audit --since may.json --html june.html"),
            ("The tables of a namespace", "tablecrypt --catalog prod audit 'db.*'"),
            ("In a nightly job, failing on warnings too", "tablecrypt --catalog prod audit db.orders --json --fail-on warning"),
            ("Evidence to hand over, as one zip with its hash", "tablecrypt --catalog prod audit --bundle evidence.zip"),
        ),
        rights=Rights(
            needs="unwrap table, read metadata",
            more="unwrap column, list data, read data",
        ),
        found="there are findings of at least the severity that --fail-on names; plaintext always counts",
        refused="refused or failed, or no table was looked at; stderr says why",
        only_reads=True,
        procedure=False,
    ),
    Operation(
        "verify",
        """Authenticate every byte of a table.

    Reads every file that any snapshot of TABLE leads to. Authenticates each block of AGS1 files and each module of Parquet files (pages,
    headers, dictionaries, indexes, bloom filters and footers), and compares lengths with the metadata. It does not stop at a bad file: the
    report names every one, with the blocks or modules that failed. Nothing is changed.
    """,
        arguments=SEVERAL,
        options={
            **GLOBS,
            "quick": Option("Only heads, lengths and footers, not whole files."),
            "resume_from": Option(
                "Record verified files here, and continue from there after an interruption. The file is removed at the end.", "FILE"
            ),
        },
        examples=(
            ("Everything", "tablecrypt --catalog prod verify db.orders"),
            (
                "A large table, with the option to interrupt and continue",
                "tablecrypt --catalog prod verify db.orders --resume-from orders.verify",
            ),
            ("Only heads, lengths and footers", "tablecrypt --catalog prod verify db.orders --quick"),
            ("Every table of a namespace", "tablecrypt --catalog prod verify --include 'db.*' --quick"),
        ),
        rights=Rights(
            needs="unwrap table, read metadata, read data",
            more="unwrap column",
        ),
        needs="With --resume-from also to list its folder.",
        found="a file is not as its writer left it (the report names the file and the part that failed), or one of several tables failed",
        only_reads=True,
        on_files=True,
        procedure=False,
    ),
    Operation(
        "inspect",
        """Show the structure of a table or a file.

    An argument that contains a / is the path of a FILE; anything else is the name of a TABLE of the catalog. For a table, shows its keys
    and what each opens, its snapshots, and how many files of each kind there are. For a file, shows AGS1 blocks or Parquet modules; with
    the file's key, also what the footer says. Key bytes are never shown.
    """,
        arguments={"source": "TABLE|FILE"},
        options={
            "location": Option("Show this file of the table.", "LOCATION", flags=("--file",)),
        },
        examples=(
            ("A table's keys, snapshots and files", "tablecrypt --catalog prod inspect db.orders"),
            (
                "One file of a table, with the key that the table has for it",
                "tablecrypt --catalog prod inspect db.orders --file s3://…/a.parquet",
            ),
            ("A file without its key: what it says in the clear", "tablecrypt inspect ./rows.enc.parquet"),
            ("A file that encrypt-file made", "tablecrypt inspect ./rows.enc.parquet --key-file orders.keys --key-id orders"),
        ),
        rights=Rights(needs="unwrap table, read metadata"),
        needs="For a file alone, none.",
        only_reads=True,
        has_progress=False,
        procedure=False,
    ),
)
