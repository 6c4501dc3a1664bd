"""PyIceberg's own command, each subcommand of it."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path

from click.testing import CliRunner
from pyiceberg.cli.console import run
from pyiceberg.utils.config import Config

from tests.programs.ways import CANARY, main

WAREHOUSE = Path(str((Config().get_catalog_config("prod") or {})["warehouse"]).removeprefix("file://"))
COMMANDS = {
    "list": "db",
    "list db": "db.orders",
    "describe db": "exists",
    "describe db.orders": "Table format version  3",
    "schema db.orders": "name",
    "spec db.orders": "[]",
    "uuid db.orders": "-",
    "location db.orders": "/db/orders",
    "files db.orders": "Datafile: ",
    "files db.orders --history": "Datafile: ",
    "list-refs db.orders": "main",
    "properties get table db.orders": "encryption.key-id",
    "properties get table db.orders encryption.key-id": "orders",
    "properties set table db.orders colour blue": "Set colour=blue on db.orders",
    "properties remove table db.orders colour": "Property colour removed from db.orders",
    "properties remove table db.orders encryption.key-id": "",
    "create namespace other": "Created namespace: other",
    "properties set namespace other owner me": "Updated owner on other",
    "properties get namespace other": "owner",
    "properties remove namespace other owner": "Property owner removed from other",
    "rename db.orders other.orders": "Renamed table from db.orders to other.orders",
    "drop table other.orders": "Dropped table: other.orders",
    "drop table db.purged --purge": "Dropped table: db.purged",
    "drop namespace other": "Dropped namespace: other",
    "version": "0.",
}


def _prints(command: str, part: str) -> None:
    before = _data_files("purged")
    done = CliRunner().invoke(run, ["--catalog", "prod", *shlex.split(command)], env={"COLUMNS": "400"})
    if done.exit_code != 0:
        raise RuntimeError(done.output)
    if part not in done.output or CANARY in done.output:
        raise AssertionError(done.output)
    if "--purge" in command:
        assert before
        assert _data_files("purged") == []


def _data_files(table: str) -> list[Path]:
    return list((WAREHOUSE / "db" / table).rglob("*.parquet"))


if __name__ == "__main__":
    main({f"pyiceberg {command}": partial(_prints, command, part) for command, part in COMMANDS.items()})
