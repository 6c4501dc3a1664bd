"""A Hypothesis state machine: every operation on an encrypted table, in any order, against a model in memory.

    def test_any_sequence_of_operations_ends_as_the_model_says(tmp_path):
        TableStateMachine.check(lambda: my_catalog(tmp_path), key_id="orders")

After each step the touched branch has the rows of the model, whatever wrote them, each row has the `_row_id` that it began with, and no
file that was written is plaintext. At the end every branch, tag and snapshot is as the model says, and every file authenticates. Two
clients hold the table; one of them may be behind, so that its commits are tried again on top of those of the other.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.types import LongType

from tablecrypt.maintenance import compact, prune_keys, reencrypt, remove_orphan_files, rewrap, rotate_kek, shred
from tablecrypt.testing.modelled_table import BORN, FIRST_COLUMNS, ModelledTable
from tablecrypt.testing.plaintext import CANARY
from tablecrypt.testing.table_model import CONDITIONS, ID, IDS, NOTE, TEAM, TEAMS, VALUE, Columns, Condition, ModelColumn, names_of

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


class TableStateMachine(ModelledTable):
    """Every operation on an encrypted table. `check` runs it; a subclass may add its own rules and invariants."""

    @initialize(fields=SPECS, merge=st.booleans(), on_read=st.booleans(), small_files=st.booleans(), values=MANY)
    def create(self, fields: frozenset[str], merge: bool, on_read: bool, small_files: bool, values: list[dict[int, Any]]) -> None:
        """Create the table, with a few rows."""
        spec = PartitionSpec(
            *(PartitionField(PARTITIONS[each][0], 1000 + n, PARTITIONS[each][1], each) for n, each in enumerate(sorted(fields)))
        )
        properties = {
            "write.delete.mode": "merge-on-read" if on_read else "copy-on-write",
            "commit.manifest-merge.enabled": str(merge).lower(),
            "commit.manifest.min-count-to-merge": "2",
            "commit.retry.min-wait-ms": "1",
        }
        if small_files:
            properties["write.target-file-size-bytes"] = "64"
        self._start(spec, properties)
        self._append(values, "main", 0, as_stream=False)

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
        # An upsert refuses keys that occur twice, in the rows or in the table.
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
                # An updated row keeps the id of the row that it replaces.
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
        self._evolved((*self.model.columns, ModelColumn(self.table.metadata.last_column_id, name, "long", default)))

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
        wide = ModelColumn(VALUE, column.name, "long")
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
        snapshot_id = list(self.model.snapshots)[number % len(self.model.snapshots)]
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
        # Oldest first, and not by their ids: these are random, so that no failure could be repeated, and Hypothesis would give up.
        old = self.model.unreferenced()
        return list(dict.fromkeys(old[number % len(old)] for number in numbers))

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
        # An hour ahead, so that files of this run count as old.
        found = remove_orphan_files(self.table, older_than=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1), dry_run=False)
        self.orphans_went = True
        assert not found.failed and not found.refused, f"orphan files can be deleted: {found.summary()}"

    # Looking.

    @rule(condition=CONDITIONS, branch=BRANCH, by_stream=st.booleans())
    def filtered(self, condition: Condition, branch: str, by_stream: bool) -> None:
        branch = self._there(branch)
        self._step("filtered scan and count")
        columns = self._seen_on(branch)
        scan = self._on(branch).filter(condition.expression(names_of(self.model.columns)))
        wanted = [row for row in self.model.rows(branch) if condition.finds(row)]
        read = scan.to_arrow_batch_reader().read_all() if by_stream else scan.to_arrow()
        self._same_rows(read, columns, wanted, f"a scan of branch {branch} where {condition}")
        assert scan.count() == len(wanted), f"count() where {condition} is the number of rows"
        assert scan.select(BORN).to_arrow().num_rows == len(wanted), f"a scan of one column where {condition} has as many rows"

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
        self._every_file_authenticates(self.table.refresh())
