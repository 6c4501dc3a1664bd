"""A folder in which the commands and programs of a page run as a reader copies them: a configured catalog, tables, key files, exports.

root/
  home/          HOME and PYICEBERG_HOME: .pyiceberg.yaml with the catalog `prod`
  elsewhere/     where the reader stands, which is neither the repository nor the warehouse; key files and exports for commands on files
  lake/          the catalog's database and its warehouse
  bin/           programs that commands of a page read from or write to

What a block changed is put back before the next page, and before the next block of a page whose blocks stand alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import strictyaml
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

import tablecrypt
from tests.support.aws import AwsServer
from tests.support.command import ROOT, Done, run, run_terminal
from tests.support.plaintext import CANARY

_ALIASES: Final = ("orders", "people", "pii", "pii-2", "fin", "archive", "eu", "lake", "partner", "partner-salary")
KEY_IDS: Final = ("orders", "lake", *(f"alias/{name}" for name in _ALIASES))
BUCKETS: Final = ("archive", "lake-eu", "backup", "lake", "partner")
ORDERS: Final = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "region", StringType()),
    NestedField(3, "day", StringType()),
    NestedField(4, "item", StringType()),
    NestedField(5, "total", DoubleType()),
)
BY_REGION_AND_DAY: Final = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "region"), PartitionField(3, 1001, IdentityTransform(), "day")
)
PEOPLE: Final = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "ssn", StringType()),
    NestedField(3, "salary", DoubleType()),
    NestedField(4, "customer_id", LongType()),
)
PROTECTED: Final = {"encryption.key-id": "alias/people", "encryption.column-keys": "alias/pii: ssn; alias/fin: salary"}
_NEEDS_A_SHELL: Final = re.compile(r"[|;&$`]|^tablecrypt run ")
"""Also a command that gives its process to another program."""
PIPELINE: Final = """\
from pyiceberg.catalog import load_catalog

rows = load_catalog("prod").load_table("db.orders").scan().to_arrow()
assert rows.num_rows == 24, rows.num_rows
"""
_ASKS: Final = "There is no terminal on which to confirm"
_REDIRECTED: Final = re.compile(r"""^(.*?) > ([^\s'"]+)$""")


def orders(first: int = 0) -> pa.Table:
    """Rows of both regions on a leap day and the day after."""
    ids = range(first, first + 8)
    return pa.table(
        {
            "id": ids,
            "region": [("north", "south")[each % 2] for each in ids],
            "day": [("2024-02-29", "2024-03-01")[each // 4 % 2] for each in ids],
            "item": [f"{CANARY} {each}" for each in ids],
            "total": [each * 1.5 for each in ids],
        },
        schema=ORDERS.as_arrow(),
    )


def people() -> pa.Table:
    """Two persons."""
    return pa.table(
        {"id": [1, 2], "ssn": [f"{CANARY} 1", f"{CANARY} 2"], "salary": [1.0, 2.0], "customer_id": [7, 8]}, schema=PEOPLE.as_arrow()
    )


class Scene:
    """A prepared folder. `plain`: the catalog also opens plain tables, and `db.orders` is one."""

    def __init__(self, root: Path, aws: AwsServer, *, plain: bool = False) -> None:
        self.root, self._aws, self._plain = root, aws, plain
        self._saved = root.with_name(f"{root.name}-saved")
        self.elsewhere, self.home = root / "elsewhere", root / "home"
        self.placeholders: dict[str, str] = {}
        """What a page cannot know, such as the id of a snapshot, and what stands for it here."""
        for folder in (self.elsewhere, self.home / ".config" / "fish" / "completions", root / "bin", root / "lake"):
            folder.mkdir(parents=True)
        self._make_files()
        self._make_catalog()
        shutil.copytree(root, self._saved)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the reader's shell."""
        return {
            "HOME": str(self.home),
            "PYICEBERG_HOME": str(self.home),
            "PATH": os.pathsep.join([str(self.root / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "catalog")]),
            "AWS_ENDPOINT_URL_KMS": self._aws.endpoint,
        }

    def enter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put everything back, and stand in it."""
        shutil.rmtree(self.root)
        shutil.copytree(self._saved, self.root)
        for bucket in BUCKETS:
            self._empty(bucket)
        self._aws.s3.put_object(Bucket="backup", Key="00041-a.metadata.json", Body=Path(self.placeholders["METADATA_FILE"]).read_bytes())
        monkeypatch.chdir(self.elsewhere)
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)

    def command(self, line: str) -> Done:
        """Run a command line: in this process; by a shell where it has a pipe; on a terminal, with the answer yes, where it asks."""
        for shown, real in self.placeholders.items():
            line = re.sub(rf"(?<![\w/]){re.escape(shown)}(?!\w)", lambda _, real=real: real, line)  # type: ignore[misc]
        if _NEEDS_A_SHELL.search(line):
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", line], capture_output=True, check=False, timeout=120, encoding="utf-8")
            return Done(done.returncode, done.stdout, done.stderr)
        redirected = _REDIRECTED.match(line)
        text, target = (redirected[1], redirected[2]) if redirected else (line, None)
        words = subprocess.run(["bash", "-c", f"printf '%s\\0' {text}"], capture_output=True, check=True, encoding="utf-8").stdout.split(
            "\0"
        )
        done_here = run(*words[1:-1])
        if _ASKS in done_here.stderr:
            code, shown = run_terminal(*words[1:-1], answer="y\n")
            return Done(code, shown, "")
        if target is not None:
            Path(target).expanduser().write_text(done_here.stdout, encoding="utf-8")
        return done_here

    def names(self) -> dict[str, Any]:
        """What a program of a how-to page takes for granted."""
        catalog = tablecrypt.load_catalog("prod")
        found: dict[str, Any] = {"catalog": catalog, "schema": ORDERS, "rows": orders(), "load_catalog": tablecrypt.load_catalog}
        return found if self._plain else {**found, "table": catalog.load_table("db.orders")}

    def properties(self) -> Mapping[str, str]:
        """The catalog `prod`."""
        properties = {
            "type": "tablecrypt",
            "uri": f"sqlite:///{self.root}/lake/catalog.db",
            "warehouse": f"{self.root}/lake/warehouse",
            "encryption.kms-type": "local",
            "kms.local.key-file": f"{self.home}/prod.keys",
            **self._aws.s3_properties,
        }
        return properties if self._plain else {**properties, "encryption.required": "true"}

    def _make_catalog(self) -> None:
        for key_id in KEY_IDS:
            _made(run("keygen", "--key-file", str(self.home / "prod.keys"), "--key-id", key_id))
        configured = strictyaml.as_document({"catalog": {"prod": dict(self.properties())}})
        (self.home / ".pyiceberg.yaml").write_text(configured.as_yaml(), encoding="utf-8")
        for bucket in BUCKETS:
            self._aws.bucket(bucket)
        catalog = tablecrypt.load_catalog("prod", **self.properties())
        catalog.create_namespace("db")
        catalog.create_namespace("archive")
        catalog.create_namespace("eu")
        encrypted = {} if self._plain else {"encryption.key-id": "alias/orders"}
        table = catalog.create_table("db.orders", ORDERS, partition_spec=BY_REGION_AND_DAY, properties=encrypted)
        for first in (0, 8, 16):
            table.append(orders(first))
        older = table.snapshots()
        file = next(iter(table.scan().plan_files())).file.file_path
        self.placeholders = {
            "4358109269873137077": str(older[0].snapshot_id),
            "71": str(older[1].snapshot_id),
            "s3://…/a.parquet": file,
            "METADATA_FILE": table.metadata_location.removeprefix("file://"),
        }
        if not self._plain:
            catalog.create_table("db.people", PEOPLE, properties=PROTECTED).append(people())
            catalog.create_table("db.archive", ORDERS, properties=encrypted).append(orders())

    def _make_files(self) -> None:
        here = self.elsewhere
        pq.write_table(orders(), here / "rows.parquet")
        shutil.copy(here / "rows.parquet", here / "export.parquet")
        (here / "pipeline.py").write_text(PIPELINE, encoding="utf-8")
        (here / "a.bin").write_bytes(b"any bytes")
        (here / "dump.sql").write_text("CREATE TABLE orders (id int);\n")
        for name, text in {"pg_dump": "echo dumped", "psql": "cat > restored.sql"}.items():
            program = self.root / "bin" / name
            program.write_text(f"#!/bin/sh\n{text}\n")
            program.chmod(0o755)
        keys = ("--key-file", str(here / "orders.keys"), "--key-id", "orders")
        _made(run("keygen", *keys))
        _made(run("encrypt-file", str(here / "rows.parquet"), str(here / "rows.enc.parquet"), *keys))
        _made(run("encrypt-file", str(here / "dump.sql"), str(here / "dump.sql.ags1"), *keys))

    def _empty(self, bucket: str) -> None:
        for each in self._aws.s3.list_objects_v2(Bucket=bucket).get("Contents", []):
            self._aws.s3.delete_object(Bucket=bucket, Key=each["Key"])


def _made(done: Done) -> None:
    assert done.code == 0, done.stderr
