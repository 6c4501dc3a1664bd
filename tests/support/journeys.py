"""Which of our files an operation passes, in the order in which it first enters them.

    python -m tests.support.journeys append | scan | upsert | reencrypt | reencrypt-protected | shred       prints the files, one a line

Each runs in a process of its own, on a table with two snapshots and a deletion vector, so that no cache of another test shortens the way.
The last word of a name says what the table has besides: a protected column.
docs/architecture.md draws them, and `drawn` reads what it draws.
"""

from __future__ import annotations

import re
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pyarrow as pa
from pyiceberg.table import Table

from tablecrypt import load_catalog, maintenance
from tablecrypt.kms.memory import MemoryKeyManagementClient

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = (f"{ROOT}/tablecrypt/", f"{ROOT}/catalog/")
FILE: Final = re.compile(r"[\w/]+\.py")
ROWS: Final = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "text": ["a", "b", "c"]})
JOURNEYS: Final[dict[str, Callable[[Table], object]]] = {
    "append": lambda table: table.append(ROWS),
    "scan": lambda table: table.scan("id > 0").to_arrow(),
    "upsert": lambda table: table.upsert(ROWS, join_cols=["id"]),
    "reencrypt": maintenance.reencrypt,
    "reencrypt-protected": maintenance.reencrypt,
    "shred": lambda table: maintenance.shred(table, [table.snapshots()[0].snapshot_id]),
}


def drawn(heading: str) -> tuple[set[str], set[str]]:
    """Return the files that the page draws for a journey: those that it names there, and those in its [groups], entered or not."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Four journeys")[2]
    listed = re.findall(r"```\n(.*?)```", page.partition("### ")[0], re.DOTALL)[0]
    groups = {name: set(FILE.findall(files)) for name, files in re.findall(r"^(\w+) +((?:.*\n)(?: +.*\n)*)", listed, re.MULTILINE)}
    journey = re.findall(r"```\n(.*?)```", page.partition(f"### {heading}\n")[2], re.DOTALL)[0]
    return set(FILE.findall(journey)), set().union(*(groups[name] for name in re.findall(r"\[(\w+)\]", journey)))


def prepared_table(folder: Path, is_protected: bool) -> Table:
    """A table whose second snapshot has a deletion vector, and which has a protected column or none."""
    MemoryKeyManagementClient({"kms.memory.name": "journeys"}, keys={"master": bytes(16), "column": bytes(16)})
    kms = {"encryption.kms-type": "memory", "kms.memory.name": "journeys"}
    catalog = load_catalog("prod", type="tablecrypt", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}", **kms)
    catalog.create_namespace("db")
    properties = {"encryption.key-id": "master", "write.delete.mode": "merge-on-read"}
    if is_protected:
        properties["encryption.column-keys"] = "column: text"
    table = catalog.create_table("db.rows", ROWS.schema, properties=properties)
    table.append(ROWS)
    table.delete("id = 2")
    return table


class Traveller:
    """Notes our files whose functions are called. Threads that start after it exists are watched, pools of threads among them."""

    def __init__(self) -> None:
        self._seen: dict[str, None] | None = None
        threading.setprofile(self._note)

    def files_passed(self, action: Callable[[], Any]) -> list[str]:
        """Run an action and return the files, in the order in which they were first entered."""
        self._seen = {}
        sys.setprofile(self._note)
        try:
            action()
        finally:
            sys.setprofile(None)
            seen, self._seen = self._seen, None
        return [name.removeprefix(f"{ROOT}/").removeprefix("catalog/").removeprefix("tablecrypt/") for name in seen]

    def close(self) -> None:
        """Watch no thread that starts from now on."""
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if self._seen is not None and event == "call" and frame.f_code.co_filename.startswith(PACKAGES):
            self._seen[frame.f_code.co_filename] = None


def main(name: str) -> None:
    warnings.simplefilter("ignore")
    traveller = Traveller()
    with tempfile.TemporaryDirectory() as folder:
        table = prepared_table(Path(folder), is_protected=name.endswith("-protected"))
        sys.stdout.write("\n".join(traveller.files_passed(lambda: JOURNEYS[name](table))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
