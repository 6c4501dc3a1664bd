"""An encrypted table of a catalog beside the model of what it must hold, and the comparison of the two: below TableStateMachine.

Each comparison that fails says in one line which property does not hold.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, run_state_machine_as_test
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from tablecrypt import is_encrypted
from tablecrypt.maintenance import verify
from tablecrypt.testing.plaintext import CANARY
from tablecrypt.testing.stored_files import files_of, plaintext_in
from tablecrypt.testing.table_model import ID, NOTE, TEAM, VALUE, Columns, Model, ModelColumn, Row, Snapshot, difference, shown

BORN: Final = "born"
SCHEMA: Final = Schema(
    NestedField(ID, "id", LongType()),
    NestedField(TEAM, "team", StringType()),
    NestedField(NOTE, "note", StringType()),
    NestedField(VALUE, "value", IntegerType()),
    NestedField(5, BORN, StringType()),
)
FIRST_COLUMNS: Final = (
    ModelColumn(ID, "id", "long"),
    ModelColumn(TEAM, "team", "string"),
    ModelColumn(NOTE, "note", "string"),
    ModelColumn(VALUE, "value", "int"),
)
ARROW: Final = {"int": pa.int32(), "long": pa.int64(), "string": pa.string()}
REFUSED: Final = (CommitFailedException, ValidationException)


def added_snapshots(table: Table, model: Model) -> list[int]:
    """The snapshots that the model does not know yet, oldest first."""
    return [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id not in model.snapshots]


class ModelledTable(RuleBasedStateMachine):
    """One encrypted table and its model, without any operation.

    Args:
        new_catalog: returns a client of the catalog, a new one with each call where the catalog can have several.
        key_id: the master key of the tables.
        namespace: where the tables go; it is created if it is not there.
        counts: takes how often each operation ran.
    """

    def __init__(self, new_catalog: Callable[[], Catalog], key_id: str, namespace: str, counts: Counter[str]) -> None:
        super().__init__()
        self.new_catalog, self.key_id, self.counts = new_catalog, key_id, counts
        self.name = f"{namespace}.t{uuid.uuid4().hex[:12]}"
        self.namespace = namespace

    @classmethod
    def check(
        cls, new_catalog: Callable[[], Catalog], key_id: str, *, namespace: str = "db", max_examples: int = 10, steps: int = 30
    ) -> Counter[str]:
        """Run sequences of operations, each on a new table, until one of them does not end as the model says.

        The tables stay in storage, so that you can look at them, and leave the catalog.

        Args:
            new_catalog: returns a client of the catalog, a new one with each call where the catalog can have several.
            key_id: the master key of the tables, which the catalog's key service has.
            namespace: where the tables go; it is created if it is not there.
            max_examples: how many sequences.
            steps: how many operations a sequence has at most.

        Returns:
            How often each operation ran.

        Raises:
            AssertionError: a property does not hold, which its message says in one line; Hypothesis adds the shortest sequence it found.
        """
        counts = Counter[str]()
        budget = settings(max_examples=max_examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck))

        # Any factory will do, whatever the annotation of Hypothesis says.
        run_state_machine_as_test(lambda: cls(new_catalog, key_id, namespace, counts), settings=budget)  # type: ignore[arg-type]
        return counts

    def _start(self, spec: PartitionSpec, properties: Mapping[str, str]) -> None:
        """Create the table, empty, with two clients that hold it."""
        catalog = self.new_catalog()
        catalog.create_namespace_if_not_exists(self.namespace)
        encrypted = {**properties, "encryption.key-id": self.key_id}
        self.clients = [catalog.create_table(self.name, SCHEMA, partition_spec=spec, properties=encrypted)]
        assert is_encrypted(self.table), f"a table with encryption.key-id is encrypted: {self.name} is a plain table"
        self.clients.append(self._loaded())
        self.model = Model(FIRST_COLUMNS)
        self.schemas: dict[int, Columns] = {self.table.schema().schema_id: FIRST_COLUMNS}
        self.row_ids: dict[str, int] = {}
        self.writes = 0
        self.orphans_went = False
        self.searched: set[str] = set()
        self.touched = "main"

    @property
    def table(self) -> Table:
        """The client that is up to date."""
        return self.clients[0]

    def _loaded(self) -> Table:
        return self.new_catalog().load_table(self.name)

    # What is written.

    def _rows(self, values: list[dict[int, Any]], columns: Columns) -> list[Row]:
        self.writes += 1
        known = {column.field_id: None for column in columns}
        return [Row(f"{CANARY} w{self.writes}.{number}", {**known, **each}) for number, each in enumerate(values)]

    def _arrow(self, rows: list[Row], columns: Columns) -> pa.Table:
        data = {each.name: pa.array([row.values.get(each.field_id) for row in rows], ARROW[each.kind]) for each in columns}
        written = pa.table({**data, BORN: pa.array([row.born for row in rows])})
        first = [each.name for each in columns[: len(FIRST_COLUMNS)]]
        return written.select([*first, BORN, *(each.name for each in columns[len(FIRST_COLUMNS) :])])

    def _columns(self, table: Table) -> Columns:
        return self.schemas[table.schema().schema_id]

    def _by_values(self) -> bool:
        """Whether the table is partitioned by values of columns alone."""
        fields = self.table.spec().fields
        return bool(fields) and all(isinstance(each.transform, IdentityTransform) for each in fields)

    def _take(self, branch: str, rows: list[Row]) -> None:
        """The branch has these rows now: in its new head, if the operation made one. Heads in between hold what they hold."""
        self.touched = branch
        self.table.refresh()
        new = added_snapshots(self.table, self.model)
        head = self.table.metadata.refs[branch].snapshot_id if branch in self.table.metadata.refs else None
        parent = self.model.branches.get(branch)

        for each in new:
            made = self.table.snapshot_by_id(each)
            assert made is not None and made.schema_id is not None, f"a snapshot names its schema: {each} of {self.name} does not"
            content = rows if each == head else self._found(each, self.schemas[made.schema_id])
            self.model.snapshots[each] = Snapshot(content, self.schemas[made.schema_id], parent)
            parent = each

        if head is None:
            assert rows == [], f"rows that were committed are kept: branch {branch} of {self.name} has no snapshot"
            return

        assert head in new or head == self.model.branches.get(branch), f"a commit makes the head of its branch: {branch} has {head}"
        if not new:
            # Only which rows there are is compared: without a new snapshot their values may read otherwise, by a changed schema.
            found, wanted = (Counter((each.born,) for each in some) for some in (self.model.rows(branch), rows))
            assert found == wanted, f"a change of rows makes a snapshot on branch {branch}: {difference(found, wanted)}"

        self.model.branches[branch] = head

    def _found(self, snapshot_id: int, columns: Columns) -> list[Row]:
        """What a snapshot in the middle of a transaction holds: it is never a head, and must go on holding it."""
        read = self.table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
        return [Row(each[BORN], {column.field_id: each[column.name] for column in columns}) for each in read]

    def _unchanged(self, branch: str = "main") -> None:
        self._take(branch, self.model.rows(branch))

    def _there(self, branch: str) -> str:
        """The branch, or main where it is not there."""
        return branch if branch in self.model.branches else "main"

    def _change(self, client: int, change: Callable[[Table], object]) -> bool:
        """Make a change by one of the clients. The other is left behind until it changes something itself; it may be refused then."""
        table = self.clients[client]
        if client == 0:
            change(table.refresh())
            return True

        renamed = self._columns(table) != self.model.columns

        try:
            change(table)
        except REFUSED:
            table.refresh()
            return False
        except FileNotFoundError:
            # What its state leads to may have been expired, and deleted as orphans.
            if not self.orphans_went:
                raise
            table.refresh()
            return False
        except ValueError as error:
            # A filter on a column that has another name by now cannot be tried again.
            if not renamed or "Could not find field" not in str(error):
                raise
            table.refresh()
            return False

        return True

    def _step(self, name: str) -> None:
        self.counts[name] += 1

    # What is read.

    def _on(self, branch: str) -> Any:
        table = self.table.refresh()
        return table.scan() if branch == "main" else table.scan().use_ref(branch)

    def _seen_on(self, branch: str) -> Columns:
        """A scan of the table has its columns of now; a scan of a branch those of the branch's head."""
        return self.model.columns if branch == "main" else self.model.snapshots[self.model.branches[branch]].columns

    def _same_rows(self, read: pa.Table, columns: Columns, rows: Iterable[Row], where: str) -> None:
        expected = {*(each.name for each in columns), BORN}
        assert set(read.column_names) == expected, (
            f"{where} has the columns of the model: {sorted(expected ^ set(read.column_names))} differ"
        )
        found = Counter((*(each[column.name] for column in columns), each[BORN]) for each in read.to_pylist())
        wanted = shown(rows, columns)
        assert found == wanted, f"{where} has the rows of the model: {difference(found, wanted)}"

    def _row_id(self, born: str, branch: str) -> int:
        self._learn_row_ids(branch)
        return self.row_ids[born]

    def _learn_row_ids(self, branch: str) -> None:
        read = self._on(branch).select(BORN, "_row_id").to_arrow().to_pylist()
        assert len({each["_row_id"] for each in read}) == len(read), f"each row of branch {branch} has a _row_id of its own"
        for each in read:
            first = self.row_ids.setdefault(each[BORN], each["_row_id"])
            assert first == each["_row_id"], f"a row keeps its _row_id: {each[BORN]} had {first} and has {each['_row_id']}"

    def _check_everything(self, table: Table) -> None:
        snapshots = {each.snapshot_id for each in table.snapshots()}
        assert snapshots == self.model.snapshots.keys(), (
            f"the snapshots are those of the model: {snapshots ^ self.model.snapshots.keys()} differ"
        )
        refs = {name: ref.snapshot_id for name, ref in table.refs().items()}
        wanted = {**self.model.branches, **self.model.tags}
        assert refs == wanted, f"branches and tags are those of the model: {refs} instead of {wanted}"
        for snapshot_id, snapshot in self.model.snapshots.items():
            scan = table.scan(snapshot_id=snapshot_id)
            self._same_rows(scan.to_arrow(), snapshot.columns, snapshot.rows, f"snapshot {snapshot_id}")
            assert scan.count() == len(snapshot.rows), f"count() of snapshot {snapshot_id} is the number of its rows"

    @invariant()
    def the_touched_branch_is_as_the_model(self) -> None:
        if not hasattr(self, "model") or self.touched not in self.model.branches:
            return
        columns = self._seen_on(self.touched)
        self._same_rows(self._on(self.touched).to_arrow(), columns, self.model.rows(self.touched), f"branch {self.touched}")
        self._learn_row_ids(self.touched)

    @invariant()
    def no_file_is_plaintext(self) -> None:
        if not hasattr(self, "model"):
            return
        table = self.table.refresh()
        new = files_of(table) - self.searched
        found = plaintext_in(table, new)
        assert not found, f"every file of {self.name} is ciphertext: {found[0]}"
        self.searched |= new

    def _every_file_authenticates(self, table: Table) -> None:
        verified = verify(table)
        assert verified.is_good, f"every file of {self.name} opens and authenticates: {verified.bad[0]}"

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        table = self._loaded()
        self._check_everything(table)
        self._every_file_authenticates(table)
        self.new_catalog().drop_table(self.name)
