"""A Hypothesis state machine: every operation on an encrypted table, in any order, against a model in memory.

After each step the touched branch has the rows of the model, whatever wrote them, and each row the `_row_id` that it began with. Two
clients hold the table; one of them may be behind, so that its commits are tried again on top of those of the other.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, Final

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE, Table
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from tablecrypt.maintenance import compact, prune_keys, reencrypt, remove_orphan_files, rewrap, rotate_kek, shred, verify
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.security.table_model import (
    CONDITIONS,
    ID,
    IDS,
    NOTE,
    TEAM,
    TEAMS,
    VALUE,
    Column,
    Columns,
    Condition,
    Model,
    Row,
    Snapshot,
    names_of,
    shown,
)
from tests.support.catalogs import MASTER_KEY
from tests.support.plaintext import CANARY

BORN: Final = "born"
SCHEMA: Final = Schema(
    NestedField(ID, "id", LongType()),
    NestedField(TEAM, "team", StringType()),
    NestedField(NOTE, "note", StringType()),
    NestedField(VALUE, "value", IntegerType()),
    NestedField(5, BORN, StringType()),
)
FIRST_COLUMNS: Final = (
    Column(ID, "id", "long"),
    Column(TEAM, "team", "string"),
    Column(NOTE, "note", "string"),
    Column(VALUE, "value", "int"),
)
ARROW: Final = {"int": pa.int32(), "long": pa.int64(), "string": pa.string()}
PARTITIONS: Final[dict[str, tuple[int, Transform[Any, Any]]]] = {
    "by_team": (TEAM, IdentityTransform()),
    "by_value": (VALUE, IdentityTransform()),
    "by_bucket": (ID, BucketTransform(3)),
    "by_start": (TEAM, TruncateTransform(2)),
}
SPECS: Final = st.frozensets(st.sampled_from(sorted(PARTITIONS)), max_size=2)
VALUES: Final = st.fixed_dictionaries(
    {
        ID: IDS,
        TEAM: st.one_of(st.none(), st.sampled_from(TEAMS)),
        NOTE: st.one_of(st.none(), st.integers(0, 3).map(lambda number: f"{CANARY} {number}")),
        VALUE: st.one_of(st.none(), IDS),
    }
)
MANY: Final = st.lists(VALUES, min_size=1, max_size=12)
BRANCH: Final = st.sampled_from(["main", "side"])
CLIENT: Final = st.sampled_from([0, 0, 0, 1])
REFUSED: Final = (CommitFailedException, ValidationException)


def added_snapshots(table: Table, model: Model) -> list[int]:
    """The snapshots that the model does not know yet, oldest first."""
    return [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id not in model.snapshots]


class TableMachine(RuleBasedStateMachine):
    """One table in one catalog. A test gives `new_catalog`, which makes a new client of it with each call."""

    new_catalog: ClassVar[Callable[[], EncryptedSqlCatalog]]
    counts: ClassVar[Counter[str]] = Counter()
    _tables: ClassVar[int] = 0

    @initialize(fields=SPECS, merge=st.booleans(), on_read=st.booleans(), small_files=st.booleans(), values=MANY)
    def create(self, fields: frozenset[str], merge: bool, on_read: bool, small_files: bool, values: list[dict[int, Any]]) -> None:
        """Create the table, with a few rows."""
        TableMachine._tables += 1
        self.name = f"db.t{TableMachine._tables}"
        spec = PartitionSpec(
            *(PartitionField(PARTITIONS[each][0], 1000 + n, PARTITIONS[each][1], each) for n, each in enumerate(sorted(fields)))
        )
        properties = {
            "encryption.key-id": MASTER_KEY,
            "write.delete.mode": "merge-on-read" if on_read else "copy-on-write",
            "commit.manifest-merge.enabled": str(merge).lower(),
            "commit.manifest.min-count-to-merge": "2",
            "commit.retry.min-wait-ms": "1",
        }
        if small_files:
            properties["write.target-file-size-bytes"] = "64"
        self.clients = [
            self._loaded(create=lambda catalog: catalog.create_table(self.name, SCHEMA, partition_spec=spec, properties=properties))
        ]
        self.clients.append(self._loaded())
        self.model = Model(FIRST_COLUMNS)
        self.schemas: dict[int, Columns] = {self.table.schema().schema_id: FIRST_COLUMNS}
        self.row_ids: dict[str, int] = {}
        self.writes = 0
        self.orphans_went = False
        self.touched = "main"
        self._append(values, "main", 0, as_stream=False)

    @property
    def table(self) -> Table:
        """The client that is up to date."""
        return self.clients[0]

    def _loaded(self, create: Callable[[EncryptedSqlCatalog], Table] | None = None) -> Table:
        catalog = type(self).new_catalog()
        return catalog.load_table(self.name) if create is None else create(catalog)

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
            assert made is not None
            assert made.schema_id is not None
            content = rows if each == head else self._found(each, self.schemas[made.schema_id])
            self.model.snapshots[each] = Snapshot(content, self.schemas[made.schema_id], parent)
            parent = each
        if head is None:
            assert rows == []
            return
        assert head in new or head == self.model.branches.get(branch)
        if not new:
            assert Counter(each.born for each in rows) == Counter(each.born for each in self.model.rows(branch))
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
            assert self.orphans_went
            table.refresh()
            return False
        except ValueError as error:
            # A filter on a column that has another name by now cannot be tried again.
            assert renamed
            assert "Could not find field" in str(error)
            table.refresh()
            return False
        return True

    def _step(self, name: str) -> None:
        TableMachine.counts[name] += 1

    # Operations on rows.

    @rule(values=MANY, branch=BRANCH, client=CLIENT, as_stream=st.booleans())
    def append(self, values: list[dict[int, Any]], branch: str, client: int, as_stream: bool) -> None:
        self._append(values, self._there(branch), client, as_stream)

    def _append(self, values: list[dict[int, Any]], branch: str, client: int, as_stream: bool) -> None:
        self._step("append")
        columns = self._columns(self.clients[client] if client else self.table.refresh())
        rows = self._rows(values, columns)
        data = self._arrow(rows, columns)
        if self._change(client, lambda table: table.append(data.to_reader() if as_stream else data, branch=branch)):
            self._take(branch, [*self.model.rows(branch), *rows])
        else:
            self._step("append refused")
            self._unchanged(branch)

    @rule(condition=CONDITIONS, branch=BRANCH, client=CLIENT)
    def delete(self, condition: Condition, branch: str, client: int) -> None:
        branch = self._there(branch)
        self._step("delete")
        names = names_of(self._columns(self.clients[client] if client else self.table.refresh()))
        if self._change(client, lambda table: table.delete(condition.expression(names), branch=branch)):
            self._take(branch, [row for row in self.model.rows(branch) if not condition.takes(row)])
        else:
            self._step("delete refused")
            self._unchanged(branch)

    @rule(values=MANY, condition=CONDITIONS, branch=BRANCH)
    def overwrite(self, values: list[dict[int, Any]], condition: Condition, branch: str) -> None:
        branch = self._there(branch)
        self._step("overwrite")
        rows = self._rows(values, self.model.columns)
        kept = [row for row in self.model.rows(branch) if not condition.takes(row)]
        expression = condition.expression(names_of(self.model.columns))
        self.table.overwrite(self._arrow(rows, self.model.columns), expression, branch=branch)
        self._take(branch, [*kept, *rows])

    @precondition(lambda self: self._by_values())
    @rule(values=MANY, branch=BRANCH)
    def dynamic_partition_overwrite(self, values: list[dict[int, Any]], branch: str) -> None:
        branch, fields = self._there(branch), self.table.spec().fields
        self._step("dynamic partition overwrite")
        rows = self._rows(values, self.model.columns)
        sources = [each.source_id for each in fields]
        replaced = {tuple(row.values.get(each) for each in sources) for row in rows}
        kept = [row for row in self.model.rows(branch) if tuple(row.values.get(each) for each in sources) not in replaced]
        self.table.dynamic_partition_overwrite(self._arrow(rows, self.model.columns), branch=branch)
        self._take(branch, [*kept, *rows])

    @rule(values=MANY, branch=BRANCH, update=st.booleans(), insert=st.booleans())
    def upsert(self, values: list[dict[int, Any]], branch: str, update: bool, insert: bool) -> None:
        branch = self._there(branch)
        present = Counter(row.values[ID] for row in self.model.rows(branch))
        source = list({each[ID]: each for each in values if present[each[ID]] < 2}.values())
        if not source or not (update or insert):
            return
        self._step("upsert")
        rows = self._rows(source, self.model.columns)
        key = self.model.column(ID).name
        self.table.upsert(self._arrow(rows, self.model.columns), [key], update, insert, branch=branch)
        matched = {row.values[ID]: row for row in rows if present[row.values[ID]]}
        kept = [row for row in self.model.rows(branch) if not update or row.values[ID] not in matched]
        written = [row for row in rows if (update if row.values[ID] in matched else insert)]
        updated = {row.values[ID]: row.born for row in self.model.rows(branch) if update and row.values[ID] in matched}
        for row in written:
            if row.values[ID] in updated:
                self.row_ids[row.born] = self._row_id(updated[row.values[ID]], branch)
        self._take(branch, [*kept, *written])

    @rule(values=MANY, condition=CONDITIONS, branch=BRANCH)
    def append_and_delete_in_one_commit(self, values: list[dict[int, Any]], condition: Condition, branch: str) -> None:
        branch = self._there(branch)
        self._step("transaction")
        rows = self._rows(values, self.model.columns)
        with self.table.transaction() as transaction:
            transaction.append(self._arrow(rows, self.model.columns), branch=branch)
            transaction.delete(condition.expression(names_of(self.model.columns)), branch=branch)
        self._take(branch, [row for row in [*self.model.rows(branch), *rows] if not condition.takes(row)])

    # Schema, partitions, properties.

    def _evolved(self, columns: Columns) -> None:
        self.model.columns = columns
        self.schemas[self.table.schema().schema_id] = columns

    @precondition(lambda self: len(self.model.columns) < 7)
    @rule(default=st.one_of(st.none(), IDS))
    def add_column(self, default: int | None) -> None:
        self._step("add column")
        self.table.refresh()
        name = f"more_{self.table.metadata.last_column_id + 1}"
        with self.table.update_schema() as update:
            update.add_column(name, LongType(), default_value=default)
        self._evolved((*self.model.columns, Column(self.table.metadata.last_column_id, name, "long", default)))

    @rule(which=st.integers(0, 6))
    def rename_column(self, which: int) -> None:
        self._step("rename column")
        column = self.model.columns[which % len(self.model.columns)]
        name = column.name.removesuffix("_x") if column.name.endswith("_x") else f"{column.name}_x"
        with self.table.refresh().update_schema() as update:
            update.rename_column(column.name, name)
        self.model.rename(column.field_id, name)
        self._evolved(self.model.columns)

    @precondition(lambda self: len(self.model.columns) > len(FIRST_COLUMNS))
    @rule()
    def delete_column(self) -> None:
        self._step("delete column")
        with self.table.refresh().update_schema() as update:
            update.delete_column(self.model.columns[-1].name)
        self._evolved(self.model.columns[:-1])

    @precondition(lambda self: self.model.column(VALUE).kind == "int")
    @rule()
    def widen_column(self) -> None:
        self._step("widen column")
        column = self.model.column(VALUE)
        with self.table.refresh().update_schema() as update:
            update.update_column(column.name, LongType())
        wide = Column(VALUE, column.name, "long")
        self._evolved(tuple(wide if each.field_id == VALUE else each for each in self.model.columns))

    @rule(fields=SPECS)
    def partition_otherwise(self, fields: frozenset[str]) -> None:
        self._step("partition otherwise")
        present = {each.name for each in self.table.refresh().spec().fields}
        with self.table.update_spec() as update:
            for each in sorted(present - fields):
                update.remove_field(each)
            for each in sorted(fields - present):
                source, transform = PARTITIONS[each]
                update.add_field(self.model.column(source).name, transform, each)

    @rule(on_read=st.booleans())
    def delete_otherwise(self, on_read: bool) -> None:
        mode = "merge-on-read" if on_read else "copy-on-write"
        self.table.refresh().transaction().set_properties({"write.delete.mode": mode}).commit_transaction()

    # Branches, tags, rollback.

    @rule(number=st.integers(0, 99), name=st.sampled_from(["side", "label", "label 2"]))
    def point(self, number: int, name: str) -> None:
        known = {**self.model.branches, **self.model.tags}
        self._step("branch or tag")
        snapshot_id = sorted(self.model.snapshots)[number % len(self.model.snapshots)]
        manage = self.table.refresh().manage_snapshots()
        is_branch = name == "side"
        if name in known:
            (manage.remove_branch(name) if is_branch else manage.remove_tag(name)).commit()
            (self.model.branches if is_branch else self.model.tags).pop(name)
        elif is_branch:
            manage.create_branch(snapshot_id, name).commit()
            self.model.branches[name] = snapshot_id
        else:
            manage.create_tag(snapshot_id, name).commit()
            self.model.tags[name] = snapshot_id

    @rule(number=st.integers(0, 99))
    def roll_back(self, number: int) -> None:
        self._step("rollback")
        before = self.model.ancestors("main")
        self.table.refresh().manage_snapshots().rollback_to_snapshot(before[number % len(before)]).commit()
        self.model.branches["main"] = before[number % len(before)]
        self.touched = "main"

    # Keys and upkeep.

    @rule()
    def rotate(self) -> None:
        self._step("rotate_kek")
        rotate_kek(self.table)

    @rule()
    def rewrap_keys(self) -> None:
        self._step("rewrap")
        rewrap(self.table)

    @rule()
    def prune(self) -> None:
        self._step("prune_keys")
        prune_keys(self.table)

    @rule(branch=BRANCH, condition=st.one_of(st.none(), CONDITIONS))
    def encrypt_anew(self, branch: str, condition: Condition | None) -> None:
        branch = self._there(branch)
        self._step("reencrypt")
        where = ALWAYS_TRUE if condition is None else condition.expression(names_of(self.model.columns))
        reencrypt(self.table, where=where, branch=branch)
        self._unchanged(branch)

    @rule(branch=BRANCH, everything=st.booleans(), by_id=st.booleans())
    def compacted(self, branch: str, everything: bool, by_id: bool) -> None:
        branch = self._there(branch)
        self._step("compact")
        sort_by = (self.model.column(ID).name,) if by_id else ()
        compact(self.table, rewrite_all=everything, sort_by=sort_by, min_input_files=2, branch=branch)
        self._unchanged(branch)

    def _selected(self, numbers: list[int]) -> list[int]:
        old = sorted(self.model.unreferenced())
        return sorted({old[number % len(old)] for number in numbers})

    @precondition(lambda self: self.model.unreferenced())
    @rule(numbers=st.lists(st.integers(0, 99), min_size=1, max_size=4))
    def expire(self, numbers: list[int]) -> None:
        self._step("expire")
        selected = self._selected(numbers)
        self.table.refresh().maintenance.expire_snapshots().by_ids(selected).commit()
        for each in selected:
            del self.model.snapshots[each]

    @precondition(lambda self: self.model.unreferenced())
    @rule(numbers=st.lists(st.integers(0, 99), min_size=1, max_size=4))
    def shredded(self, numbers: list[int]) -> None:
        self._step("shred")
        selected = self._selected(numbers)
        shred(self.table, selected)
        for each in selected:
            del self.model.snapshots[each]

    @rule()
    def orphans_removed(self) -> None:
        self._step("remove_orphan_files")
        found = remove_orphan_files(self.table, older_than=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1), dry_run=False)
        self.orphans_went = True
        assert not found.failed
        assert not found.refused

    # Looking.

    @rule(condition=CONDITIONS, branch=BRANCH, by_stream=st.booleans())
    def filtered(self, condition: Condition, branch: str, by_stream: bool) -> None:
        branch = self._there(branch)
        self._step("filtered scan and count")
        columns = self._seen_on(branch)
        scan = self._on(branch).filter(condition.expression(names_of(self.model.columns)))
        wanted = [row for row in self.model.rows(branch) if condition.finds(row)]
        read = scan.to_arrow_batch_reader().read_all() if by_stream else scan.to_arrow()
        assert self._read(read, columns) == shown(wanted, columns)
        assert scan.count() == len(wanted)
        assert scan.select(BORN).to_arrow().num_rows == len(wanted)

    @rule()
    def time_travel(self) -> None:
        self._step("time travel")
        self._check_everything(self.table.refresh())

    @rule()
    def new_clients(self) -> None:
        self._step("new clients")
        self.clients = [self._loaded(), self.clients[0]]
        self._check_everything(self.table)

    @rule()
    def verified(self) -> None:
        self._step("verify")
        assert verify(self.table.refresh()).is_good

    def _on(self, branch: str) -> Any:
        table = self.table.refresh()
        return table.scan() if branch == "main" else table.scan().use_ref(branch)

    def _seen_on(self, branch: str) -> Columns:
        """A scan of the table has its columns of now; a scan of a branch those of the branch's head."""
        return self.model.columns if branch == "main" else self.model.snapshots[self.model.branches[branch]].columns

    def _read(self, read: pa.Table, columns: Columns) -> Counter[tuple[Any, ...]]:
        assert sorted(read.column_names) == sorted([*(each.name for each in columns), BORN])
        return Counter((*(each[column.name] for column in columns), each[BORN]) for each in read.to_pylist())

    def _row_id(self, born: str, branch: str) -> int:
        self._learn_row_ids(branch)
        return self.row_ids[born]

    def _learn_row_ids(self, branch: str) -> None:
        read = self._on(branch).select(BORN, "_row_id").to_arrow().to_pylist()
        assert len({each["_row_id"] for each in read}) == len(read)
        for each in read:
            assert self.row_ids.setdefault(each[BORN], each["_row_id"]) == each["_row_id"]

    def _check_everything(self, table: Table) -> None:
        assert {each.snapshot_id for each in table.snapshots()} == self.model.snapshots.keys()
        assert {name: ref.snapshot_id for name, ref in table.refs().items()} == {**self.model.branches, **self.model.tags}
        for snapshot_id, snapshot in self.model.snapshots.items():
            read = table.scan(snapshot_id=snapshot_id).to_arrow()
            assert self._read(read, snapshot.columns) == shown(snapshot.rows, snapshot.columns)
            assert table.scan(snapshot_id=snapshot_id).count() == len(snapshot.rows)

    @invariant()
    def the_touched_branch_is_as_the_model(self) -> None:
        if not hasattr(self, "model") or self.touched not in self.model.branches:
            return
        columns = self._seen_on(self.touched)
        assert self._read(self._on(self.touched).to_arrow(), columns) == shown(self.model.rows(self.touched), columns)
        self._learn_row_ids(self.touched)

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self._check_everything(self._loaded())
