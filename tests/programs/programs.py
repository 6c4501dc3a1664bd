"""The programs that use PyIceberg, and what each of their calls makes of an encrypted table: what docs/programs.md says, and tests hold.

A call works, is refused with the line to write instead, or cannot work, for a reason that the page gives. There is no fourth.

A program runs in an environment with its current release, or in that of the tests, which has a locked one. `release` is the one that was
last seen to behave so. An environment with an older one fails the test: pip may have gone back to find one beside our PyIceberg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Outcome = Literal["works", "refused", "cannot"]

_OPENS_FILES: Final = "this engine opens the table's files by itself"


@dataclass(frozen=True)
class Call:
    """One way to use a program with a table.

    Attributes:
        code: what a user writes, or does.
        outcome: what becomes of it.
        says: a part of the error's text, where it does not work.
        remark: the line to write instead, the reason why it cannot work, or what else a user needs to know; Markdown.
        is_text: whether `code` is a description and no code.
    """

    code: str
    outcome: Outcome = "works"
    says: str = ""
    remark: str = ""
    is_text: bool = False


@dataclass(frozen=True)
class Program:
    """A program and its calls.

    Attributes:
        name: of its section on the page, and in `make test-programs PROGRAM=…`, there in lower case and with hyphens.
        package: that has its version.
        release: of that package.
        module: in tests/programs, that has its calls.
        installs: requirements of its environment beside tablecrypt; none for the environment of the tests.
        dies_at: parts of the locations of files at whose first write it is killed, one run for each.
        calls: in the order in which they are made.
        environment: variables that it runs with; {memory} stands for a folder in memory.
        about: what stands above its calls; Markdown.
    """

    name: str
    package: str
    release: str
    module: str
    calls: tuple[Call, ...]
    installs: tuple[str, ...] = ()
    dies_at: tuple[str, ...] = (".parquet", "/snap-")
    environment: tuple[tuple[str, str], ...] = ()
    about: str = ""

    @property
    def slug(self) -> str:
        return self.name.lower().replace(" ", "-")


PROGRAMS: Final = (
    Program(
        "pyiceberg command",
        package="pyiceberg",
        release="0.12.0",
        module="pyiceberg_ways",
        dies_at=(".metadata.json",),
        about="Each subcommand, as in `tablecrypt run pyiceberg --catalog prod list`.",
        calls=(
            Call("pyiceberg list"),
            Call("pyiceberg list db"),
            Call("pyiceberg describe db"),
            Call("pyiceberg describe db.orders"),
            Call("pyiceberg schema db.orders"),
            Call("pyiceberg spec db.orders"),
            Call("pyiceberg uuid db.orders"),
            Call("pyiceberg location db.orders"),
            Call("pyiceberg files db.orders", remark="Manifests are decrypted for it. It shows the files' names, and no row."),
            Call("pyiceberg files db.orders --history"),
            Call("pyiceberg list-refs db.orders"),
            Call("pyiceberg properties get table db.orders"),
            Call("pyiceberg properties get table db.orders encryption.key-id"),
            Call("pyiceberg properties set table db.orders colour blue"),
            Call("pyiceberg properties remove table db.orders colour"),
            Call(
                "pyiceberg properties remove table db.orders encryption.key-id",
                "cannot",
                "encryption.key-id (orders) cannot be removed",
                "An encrypted table stays one.",
            ),
            Call("pyiceberg create namespace other"),
            Call("pyiceberg properties set namespace other owner me"),
            Call("pyiceberg properties get namespace other"),
            Call("pyiceberg properties remove namespace other owner"),
            Call("pyiceberg rename db.orders other.orders"),
            Call("pyiceberg drop table other.orders"),
            Call("pyiceberg drop table db.purged --purge", remark="Deletes the table's files too."),
            Call("pyiceberg drop namespace other"),
            Call("pyiceberg version"),
        ),
    ),
    Program(
        "pandas",
        package="pandas",
        release="3.1.1",
        module="pandas_ways",
        calls=(
            Call('pd.read_iceberg("db.orders", catalog_name="prod")'),
            Call('pd.read_iceberg("db.orders", catalog_name="prod", columns=…, row_filter=…, limit=…)'),
            Call('df.to_iceberg("db.pandas", catalog_name="prod")', remark="A new table is encrypted with `encryption.default-key-id`."),
            Call('df.to_iceberg("db.pandas", catalog_name="prod", append=True)'),
        ),
    ),
    Program(
        "Polars",
        package="polars",
        release="2.1.0",
        module="polars_ways",
        calls=(
            Call("pl.scan_iceberg(table)", remark="Polars plans, and reads through the table's scan, which decrypts."),
            Call('pl.scan_iceberg("db.orders", catalog=catalog)'),
            Call("table.to_polars()"),
            Call(
                'pl.scan_iceberg(table, reader_override="native")',
                "refused",
                "non-parquet format: encrypted Parquet",
                "`pl.scan_iceberg(table)`",
            ),
            Call(
                "lf.sink_iceberg(table, mode=…)",
                "refused",
                _OPENS_FILES,
                "`df.write_iceberg(table, mode=…)`, or `table.append(lf.collect().to_arrow())`",
            ),
            Call(
                'lf.sink_iceberg("db.new", catalog=catalog, create_if_not_exists=True)',
                "refused",
                _OPENS_FILES,
                '`catalog.create_table("db.new", …)`, then as above. With `encryption.default-key-id`, an empty table stays.',
            ),
            Call(
                'pl.scan_iceberg("…/metadata.json")',
                "cannot",
                "No schema found in Avro file headers",
                "Without the catalog there is no key: manifest lists are ciphertext.",
            ),
            Call('df.write_iceberg(table, mode="append")'),
            Call('df.write_iceberg(table, mode="overwrite")'),
            Call('pl.delete_iceberg(table, pl.col("id") > 4)'),
        ),
    ),
    Program(
        "DuckDB",
        package="duckdb",
        release="2.0.0",
        module="duckdb_ways",
        calls=(
            Call('table.scan().to_duckdb("orders", connection)'),
            Call('connection.register("orders", table.scan().to_arrow_dataset())'),
            Call(
                "read_parquet('…/data/*.parquet')",
                "cannot",
                "is encrypted, but 'encryption_config' was not set",
                "Each file has a key of its own, which its manifest holds, and DuckDB knows none. Use the lines above.",
            ),
            Call('table.append(connection.sql("…").to_arrow_table())'),
        ),
    ),
    Program(
        "DataFusion",
        package="datafusion",
        release="55.0.0",
        module="datafusion_ways",
        calls=(
            Call('context.register_dataset("orders", table.scan().to_arrow_dataset())'),
            Call('context.from_arrow(table.scan().to_arrow(), "orders")'),
            Call(
                'context.register_table("orders", table)',
                "refused",
                "reads data files by itself and cannot decrypt them",
                '`context.register_dataset("orders", table.scan().to_arrow_dataset())`',
            ),
            Call(
                'table.append(context.sql("…").to_arrow_table())', remark="Cast text to `pa.string()` where DataFusion makes views of it."
            ),
        ),
    ),
    Program(
        "dlt",
        package="dlt",
        release="1.31.0",
        module="dlt_ways",
        # dlt reads back through DuckDB's extension, which these bring; with a newer SQLGlot it calls a function that is gone.
        installs=("dlt[pyiceberg]", "duckdb-ext-iceberg", "duckdb-ext-avro", "pandas", "sqlglot<28"),
        environment=(
            ("ICEBERG_CATALOG__ICEBERG_CATALOG_NAME", "prod"),
            ("RUNTIME__DLTHUB_TELEMETRY", "false"),
            ("DLT_DATA_DIR", "{memory}"),
        ),
        about=(
            'The destination `filesystem`, resources with `table_format="iceberg"`, and `ICEBERG_CATALOG__ICEBERG_CATALOG_NAME=prod` '
            "in the environment. dlt looks for `.pyiceberg.yaml` in `PYICEBERG_HOME` and where the pipeline runs, and makes a plain "
            "catalog where it finds none. `tablecrypt run` sets `PYICEBERG_HOME` if the file is in your home, and no registered program "
            "gets a plain catalog by the name of an encrypting one.\n\n"
            "**dlt keeps plaintext of its own.** Before it loads rows, it writes them all into Parquet files of its working folder "
            "(`~/.dlt`, for root `/var/dlt`), and they stay there after the load. No catalog can change that. Put the folder into memory "
            "with `DLT_DATA_DIR=/dev/shm/dlt`, or onto an encrypted disk. The tests run with the folder in memory, and find plaintext "
            "there and nowhere else."
        ),
        calls=(
            Call('write_disposition="append"'),
            Call("a new column", is_text=True),
            Call(
                "nested data, which becomes a table of its own",
                remark="With `encryption.default-key-id`, under the same master key.",
                is_text=True,
            ),
            Call('write_disposition="replace"'),
            Call('write_disposition="merge"'),
            Call('write_disposition={"disposition": "merge", "strategy": "insert-only"}'),
            Call('pipeline.run(…, refresh="drop_resources")'),
            Call('get_iceberg_tables(pipeline)["orders"].scan()', remark="From `dlt.common.libs.pyiceberg`."),
            Call(
                "pipeline.dataset().orders.arrow()",
                "cannot",
                "Incorrect Avro container file magic number",
                "dlt reads through DuckDB's `iceberg_scan`, which knows no keys. Use the line above.",
            ),
        ),
    ),
    Program(
        "Ibis",
        package="ibis-framework",
        release="12.0.0",
        module="ibis_ways",
        installs=("ibis-framework[duckdb]",),
        about="Ibis has no reader of Iceberg tables. It gets the rows of a scan.",
        calls=(
            Call("ibis.memtable(table.scan().to_arrow())"),
            Call("ibis.memtable(table.scan().to_arrow_dataset())"),
            Call('ibis.duckdb.from_connection(table.scan().to_duckdb("orders"))'),
            Call("table.append(expression.to_pyarrow())"),
        ),
    ),
    Program(
        "marimo",
        package="marimo",
        release="0.25.2",
        module="marimo_ways",
        installs=("marimo[sql]",),
        dies_at=(),
        environment=(("PYICEBERG_CATALOG__PROD__TYPE", "tablecrypt"),),
        about="Start `marimo edit` under `tablecrypt run`. marimo itself writes no Iceberg table.",
        calls=(
            Call("the loader, with the type in the environment", remark="`PYICEBERG_CATALOG__PROD__TYPE=tablecrypt`.", is_text=True),
            Call(
                "the loader, with .pyiceberg.yaml alone",
                "cannot",
                "marimo shows no catalog",
                'Of a file, marimo shows catalogs of PyIceberg\'s own types. Write its two lines yourself: `load_catalog("prod")` works.',
                is_text=True,
            ),
            Call("the panel of data sources", is_text=True),
            Call('mo.sql("…") over table.to_polars().collect()'),
        ),
    ),
    Program(
        "dbt-duckdb",
        package="dbt-duckdb",
        release="1.11.1",
        module="dbt_duckdb_ways",
        # dbt-core 1.12 builds its parser from a file that it downloads from elsewhere than the registry.
        installs=("dbt-duckdb", "dbt-core<1.12"),
        dies_at=(),
        about=(
            "The plugin `iceberg` with `config: {catalog: prod}`, which reads, and has no way to write. It copies a source into the "
            'database of the profile: use `path: ":memory:"`, or an encrypted disk. A database in a file has the rows in plaintext. Tested '
            "with dbt-core 1.11."
        ),
        calls=(Call("{{ source('db', 'orders') }}"),),
    ),
    Program(
        "Dagster",
        package="dagster-iceberg",
        release="0.3.9",
        module="dagster_ways",
        installs=("dagster-iceberg",),
        about=(
            'The resource `PyArrowIcebergIOManager(name="prod", config=IcebergCatalogConfig(properties={}), namespace="db")`. '
            "dagster-iceberg 0.3.9 is the newest release that installs beside PyIceberg 0.12: 0.3.14 wants an older one. When an asset "
            "is made again, it removes every property of the table that the asset does not name."
        ),
        calls=(
            Call("an asset as input", is_text=True),
            Call("an asset, for the first time", is_text=True),
            Call(
                "an asset, again",
                "refused",
                "encryption.key-id=orders among them",
                '`metadata={"table_properties": {"encryption.key-id": "orders"}}`',
                is_text=True,
            ),
            Call('metadata={"table_properties": {"encryption.key-id": "orders"}}'),
            Call('metadata={"write_mode": "append", "table_properties": …}'),
            Call('metadata={"write_mode": "upsert", "table_properties": …}'),
            Call("a new column", remark='`metadata={"schema_update_mode": "update", "table_properties": …}`.', is_text=True),
        ),
    ),
    Program(
        "Daft",
        package="daft",
        release="0.7.26",
        module="daft_ways",
        installs=("daft",),
        calls=(
            Call("daft.read_iceberg(table)", "refused", _OPENS_FILES, "`tablecrypt.daft.read_table(table)`"),
            Call("table.to_daft()", "refused", "daft.from_arrow(table.scan().to_arrow())", "the same"),
            Call('daft.Catalog.from_iceberg(catalog).get_table("db.orders").read()', "refused", _OPENS_FILES, "the same"),
            Call("df.write_iceberg(table)", "refused", _OPENS_FILES, "`df.write_sink(tablecrypt.daft.datasink(table))`"),
            Call(
                "daft.read_iceberg(table, io_config=…)",
                "cannot",
                "encrypted footer",
                "Daft's reader has no keys. Use `tablecrypt.daft.read_table(table)`.",
            ),
            Call("df.write_iceberg(table, io_config=…)", "refused", _OPENS_FILES, "`df.write_sink(tablecrypt.daft.datasink(table))`"),
            Call("tablecrypt.daft.read_table(table)"),
            Call("df.write_sink(tablecrypt.daft.datasink(table))"),
            Call("daft.from_arrow(table.scan().to_arrow())"),
            Call("table.append(df.to_arrow())", remark="Cast large to plain text where the table has plain text."),
        ),
    ),
    Program(
        "Ray Data",
        package="ray",
        release="2.60.0",
        module="ray_ways",
        installs=("ray[data]>=2.60,<3",),
        dies_at=(),
        about="[Encrypted tables in Ray Data](../ray.md) says how keys reach the workers, and what is tried with killed ones.",
        calls=(
            Call(
                'ray.data.read_iceberg(table_identifier="db.orders", catalog_kwargs={"name": "prod"})',
                "refused",
                "tablecrypt.ray.read_table(table)",
                "`tablecrypt.ray.read_table(table)`",
            ),
            Call(
                'dataset.write_iceberg("db.orders", catalog_kwargs={"name": "prod"})',
                "refused",
                "tablecrypt.ray.datasink(table)",
                "`dataset.write_datasink(tablecrypt.ray.datasink(table))`",
            ),
            Call("tablecrypt.ray.read_table(table)"),
            Call("dataset.write_datasink(tablecrypt.ray.datasink(table))"),
        ),
    ),
)
"""In the page's order."""
