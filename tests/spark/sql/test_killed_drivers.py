"""A driver that is killed while INSERT, MERGE, CREATE and REPLACE TABLE AS SELECT write: tables hold what was committed, and all run again.

The JVM alone is killed, as by a system that is out of memory; or everything at once, as when the machine goes.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from tablecrypt.maintenance import remove_orphan_files, verify
from tests.spark.conftest import Lake
from tests.spark.sql.test_write import SIMPLE, create, files, stored
from tests.spark.sql.test_write_failures import SMALL_FILES
from tests.support.endless_sql_driver import ROWS_OF_BATCH
from tests.support.plaintext import CANARY
from tests.support.processes import command_line, with_descendants
from tests.support.tables import ids
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.campaign]
DRIVER: Final = Path(__file__).parents[2] / "support" / "endless_sql_driver.py"
# Text that does not compress, so that a task writes many files.
NOTE: Final = f"concat('{CANARY}', sha2(cast(id AS string), 512)) AS note"
ENDLESS: Final = f"SELECT id, {NOTE} FROM range(0, {2**40}, 1, 1)"
MERGED: Final = 100_000
FILES_BEFORE_THE_KILL: Final = 3
BATCHES_BEFORE_THE_KILL: Final = 2


class Tables:
    """A table for each statement, and the driver that runs them."""

    def __init__(self, prod: Lake, name: str, folder: Path) -> None:
        self.lake = prod
        self.made = f"{name}_made"
        self.inserted = create(prod, f"{name}_inserted", SIMPLE, properties=SMALL_FILES)
        self.counted = create(prod, f"{name}_counted", SIMPLE)
        modes = {"write.merge.mode": "copy-on-write", "write.distribution-mode": "none"}
        self.merged = create(prod, f"{name}_merged", SIMPLE, properties=modes)
        self.merged.append(pa.table({"id": range(MERGED), "note": ["before"] * MERGED}, schema=SIMPLE.as_arrow()))
        with self.merged.transaction() as transaction:
            transaction.set_properties(SMALL_FILES)
        self.before = self.merged.metadata_location
        self.replaced = create(prod, f"{name}_replaced", SIMPLE)
        self.replaced.append(pa.table({"id": range(9), "note": ["before"] * 9}, schema=SIMPLE.as_arrow()))
        self.files_before = {*stored(self.merged), *stored(self.replaced)}
        self._folder = folder

    @property
    def made_files(self) -> list[Path]:
        """The data files of the table that is not there yet."""
        return sorted((self.lake.warehouse / "db" / self.made.partition(".")[2] / "data").rglob("*.parquet"))

    def written(self) -> list[list[Path]]:
        """What each of the four statements has written."""
        changed = [[path for path in stored(table) if path not in self.files_before] for table in (self.merged, self.replaced)]
        return [stored(self.inserted), *changed, self.made_files]

    def run_and_kill(self, *, everything: bool) -> int:
        """Kill a driver in the middle of its statements. Returns how many batches it said were committed."""
        source = f"(SELECT id, {NOTE} FROM range(0, {MERGED}, 1, 2)) s"
        merge = f"MERGE INTO prod.{'.'.join(self.merged.name())} t USING {source} ON t.id = s.id WHEN MATCHED THEN UPDATE SET note = s.note"
        properties = "TBLPROPERTIES ('encryption.key-id' = 'alias/orders', 'write.target-file-size-bytes' = '20000')"
        job = {
            "folder": str(self._folder),
            "properties": self.lake.properties,
            "statements": [
                f"INSERT INTO prod.{'.'.join(self.inserted.name())} {ENDLESS}",
                merge,
                f"CREATE TABLE prod.{self.made} {properties} AS {ENDLESS}",
                f"REPLACE TABLE prod.{'.'.join(self.replaced.name())} {properties} AS {ENDLESS}",
            ],
            "batch": f"INSERT INTO prod.{'.'.join(self.counted.name())} SELECT id, '{CANARY}' FROM range({{first}}, {{last}})",
        }
        said = self._folder / "said"
        with said.open("wb") as out, (self._folder / "errors").open("wb") as errors:
            driver = subprocess.Popen([sys.executable, str(DRIVER)], stdin=subprocess.PIPE, stdout=out, stderr=errors, cwd=self._folder)
        assert driver.stdin is not None
        driver.stdin.write(json.dumps(job).encode())
        driver.stdin.close()
        try:
            wait_until(lambda: driver.poll() is not None or self._is_in_the_middle(said))
            assert driver.poll() is None, (self._folder / "errors").read_text()[-4000:]
        finally:
            kill(driver.pid, everything=everything)
            driver.wait(60)
        return len(said.read_text().splitlines())

    def _is_in_the_middle(self, said: Path) -> bool:
        writes = min(len(written) for written in self.written())
        return writes >= FILES_BEFORE_THE_KILL and len(said.read_text().splitlines()) >= BATCHES_BEFORE_THE_KILL


def kill(driver: int, *, everything: bool) -> None:
    """Kill a driver's JVM, or it and all that runs for it; return when nothing of it runs any more."""
    processes = with_descendants(driver)
    java = [process for process in processes if Path(os.fsdecode(command_line(process).split(b"\0")[0])).name == "java"]
    # Stopped first, so that none of them sees another one's end.
    for process in processes if everything else []:
        os.kill(process, signal.SIGSTOP)
    for process in processes if everything else [*java, driver]:
        os.kill(process, signal.SIGKILL)
    wait_until(lambda: not any(command_line(process) for process in processes))


@pytest.mark.parametrize("everything", [False, True], ids=["the JVM", "the machine"])
def test_tables_hold_what_was_committed_and_the_statements_run_again(
    spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path, everything: bool
) -> None:
    tables = Tables(prod, new_name, tmp_path)
    said = tables.run_and_kill(everything=everything)

    assert tables.inserted.refresh().current_snapshot() is None
    assert tables.merged.refresh().metadata_location == tables.before
    assert ids(tables.merged.refresh()) == list(range(MERGED))
    assert ids(tables.replaced.refresh()) == list(range(9))
    with pytest.raises(NoSuchTableError):
        prod.catalog.load_table(tables.made)
    counted = ids(tables.counted.refresh())
    assert counted == list(range(len(counted)))
    # The last batch may have been committed before anybody could say so.
    assert len(counted) in (said * ROWS_OF_BATCH, (said + 1) * ROWS_OF_BATCH)
    left = [path for written in tables.written() for path in written]
    assert everything == bool(left), "the planner deletes what an open write has written, and nobody does when all are killed"
    assert not [path for path in left if CANARY.encode() in path.read_bytes()]

    spark.sql(f"INSERT INTO prod.{'.'.join(tables.inserted.name())} SELECT id, 'x' FROM range(5)")
    spark.sql(f"MERGE INTO prod.{'.'.join(tables.merged.name())} t USING (SELECT 3L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE")
    spark.sql(
        f"CREATE TABLE prod.{tables.made} TBLPROPERTIES ('encryption.key-id' = 'alias/orders') AS SELECT id, 'x' AS note FROM range(7)"
    )
    spark.sql(f"REPLACE TABLE prod.{'.'.join(tables.replaced.name())} AS SELECT id AS other FROM range(3)")
    made = prod.catalog.load_table(tables.made)
    assert tables.replaced.refresh().scan().to_arrow().sort_by("other").to_pydict() == {"other": [0, 1, 2]}
    assert ids(tables.inserted.refresh()) == list(range(5)) and ids(made.refresh()) == list(range(7))
    assert ids(tables.merged.refresh()) == [number for number in range(MERGED) if number != 3]
    for table in (tables.inserted, tables.merged, tables.replaced, tables.counted, made):
        remove_leftovers(table)


def remove_leftovers(table: Table) -> None:
    """After a clean-up the table has no file that it does not name, and all that it names is good."""
    tomorrow = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    remove_orphan_files(table.refresh(), older_than=tomorrow, dry_run=False)
    assert set(files(table)) <= set(stored(table))
    assert not remove_orphan_files(table, older_than=tomorrow).found
    assert verify(table).is_good
