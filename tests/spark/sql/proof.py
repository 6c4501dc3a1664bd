"""A table under random statements, and what is checked after each of them."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.types import IntegerType, StringType

from tablecrypt.maintenance import compact
from tablecrypt.table.table import EncryptedTable
from tests.spark.sql.partitionings import MORE_FIELDS, Field
from tests.spark.sql.random_statements import RandomStatements
from tests.spark.sql.table_model import MAIN, ROW_ID, SEQUENCE_NUMBER, difference, without_lineage
from tests.spark.sql.values import Column, comparable, order_key, quoted
from tests.support.plaintext import CANARY

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

IDENTIFIER: Final = "db.t"
SIDE: Final = "side"
_LINEAGE: Final = (ROW_ID, SEQUENCE_NUMBER)
_REFUSALS: Final = r"(?i)null|stop|cardinality|write a literal"


class Proof:
    """The table `db.t` of a catalog that Spark and Python share."""

    def __init__(
        self,
        seed: int,
        spark: SparkSession,
        spark_catalog: str,
        catalog: Catalog,
        mode: str,
        fields: tuple[Field, ...],
        *,
        replaces: bool,
    ) -> None:
        self.random = Random(seed)
        self.spark = spark
        self.catalog = catalog
        self.spark_catalog = spark_catalog
        self.statements = RandomStatements(self.random, spark, f"{spark_catalog}.{IDENTIFIER}", fields, replaces=replaces)
        self.model = self.statements.model
        properties = {f"write.{operation}.mode": mode for operation in ("delete", "update", "merge")}
        distribution = self.random.choice(["none", "hash", "range"])
        self.statements.create({"encryption.key-id": "alias/orders", "write.distribution-mode": distribution, **properties})

    @property
    def table(self) -> EncryptedTable:
        """As the catalog has it now."""
        table = self.catalog.load_table(IDENTIFIER)
        assert isinstance(table, EncryptedTable)
        return table

    def run(self, steps: int) -> None:
        """Run that many statements; an error shows all of them."""
        try:
            for number in range(steps):
                self._step(number)
            for branch in self.model.branches:
                self._check(branch, set())
        except BaseException as error:
            error.add_note("\n".join(self.statements.transcript))
            raise

    def _step(self, number: int) -> None:
        draw = self.random.random()
        if number < 2 or draw < 0.62:
            branch = self.random.choice([MAIN, MAIN, MAIN, SIDE]) if SIDE in self.model.branches else MAIN
            changed = self.statements.write(branch)
            if changed is not None:
                self._check(branch, changed)
            return
        if draw < 0.78:
            self.statements.evolve()
        elif draw < 0.85:
            self._run_what_is_refused()
        else:
            self._do_something_else()
        self._check(MAIN, set())

    def _do_something_else(self) -> None:
        """What reaches the table beside statements that write."""
        others = [self._append, self._delete, self._compact, self._repartition, self._roll_back, self._add_with_default]
        self.random.choice(others if SIDE in self.model.branches else [*others, self._make_branch])()

    # What holds after each statement.

    def _check(self, branch: str, changed: set[int]) -> None:
        table, target = self.table, self.statements.target(branch)
        found = self.spark.sql(f"SELECT *, {', '.join(_LINEAGE)} FROM {target}").toArrow().to_pylist()
        self.model.check(branch, found, changed, self._last_sequence_number(table))
        snapshot = table.snapshot_by_name(branch)
        if snapshot is not None:
            self.model.remember(branch, snapshot.snapshot_id)
        if snapshot is not None and branch == MAIN:
            rows = table.scan(selected_fields=("*", *_LINEAGE)).to_arrow().to_pylist()
            key = self.model.columns[0].name
            assert without_lineage(rows, key) == without_lineage(found, key), "Python and SQL read different rows or lineage"
        self._check_a_condition(branch, target)
        self._check_an_older_snapshot()

    def _last_sequence_number(self, table: EncryptedTable) -> int:
        metadata = table.metadata
        assert metadata.format_version == 3
        return metadata.last_sequence_number

    def _check_a_condition(self, branch: str, target: str) -> None:
        """What is pruned, pushed down or taken from metadata is right: the rows under a condition, and a column's count and bounds."""
        condition = self.statements.condition()
        key = quoted(self.model.columns[0].name)
        expected = {number for number, row in self.model.branches[branch].items() if condition.holds(row)}
        found = {row[0] for row in self.spark.sql(f"SELECT {key} FROM {target} WHERE {condition.sql}").collect()}
        assert found == expected, f"WHERE {condition.sql}: missing {sorted(expected - found)}, surplus {sorted(found - expected)}"

        column = self.random.choice([column for column in self.model.columns if column.ordered])
        name = quoted(column.name)
        figures = f"count(*) AS rows, count({name}) AS filled, min({name}) AS low, max({name}) AS high"
        (counted,) = self.spark.sql(f"SELECT {figures} FROM {target}").toArrow().to_pylist()
        values = [value for row in self.model.branches[branch].values() if (value := row.get(column.key, column.default)) is not None]
        bounds = (min(values, key=order_key), max(values, key=order_key)) if values else (None, None)
        wanted = (len(self.model.branches[branch]), len(values), *map(comparable, bounds))
        assert tuple(map(comparable, counted.values())) == wanted, f"of {column.name}: {counted}, expected {wanted}"

    def _check_an_older_snapshot(self) -> None:
        kept = {snapshot.snapshot_id for snapshot in self.table.metadata.snapshots}
        if not (candidates := sorted(self.model.snapshots.keys() & kept)):
            return
        number = self.random.choice(candidates)
        state = self.model.snapshots[number]
        rows = self.spark.sql(f"SELECT * FROM {self.statements.name} VERSION AS OF {number}").toArrow().to_pylist()
        found = {row[state.columns[0].name]: {name: comparable(value) for name, value in row.items()} for row in rows}
        expected = self.model.shown(state.rows, state.columns)
        assert found == expected, f"VERSION AS OF {number}: {difference(found, expected)}"

    def _run_what_is_refused(self) -> None:
        statement = self.statements.refused()
        if statement is None:
            return
        before = self.table.metadata
        with pytest.raises(Exception, match=_REFUSALS):
            self.statements.sql(statement)
        assert self.table.metadata == before, f"refused, and the table changed all the same: {statement}"

    # What others do in between.

    def _append(self) -> None:
        rows = self.model.new_rows(self.random, 5)
        named = [{column.name: column.shown(row.get(column.key)) for column in self.model.columns} for row in rows]
        self._note("Python appends 5 rows")
        table = self.table
        table.append(pa.Table.from_pylist(named, schema=table.schema().as_arrow()))
        self.model.add(MAIN, rows)

    def _delete(self) -> None:
        if not self.model.branches[MAIN]:
            return
        key = self.random.choice(sorted(self.model.branches[MAIN]))
        self._note(f"Python deletes row {key}")
        self.table.delete(EqualTo(term=self.model.columns[0].name, value=key))
        del self.model.branches[MAIN][key]

    def _compact(self) -> None:
        self._note("Python compacts")
        compact(self.table, rewrite_all=True)

    def _add_with_default(self) -> None:
        """A column that older rows have a value of, in no file of theirs."""
        column = Column(self.model.new_key(), self.statements.free_name(), self.random.choice(["int", "string"]), required=True)
        drawn = column.draw(self.random)
        # Defaults are in the table's metadata, which is plaintext by specification.
        default = drawn.replace(CANARY, "public") if isinstance(drawn, str) else drawn
        column = replace(column, default=default, required=False)
        self._note(f"Python adds the column {column.name} with the default {column.default!r}")
        kind = IntegerType() if column.kind == "int" else StringType()
        with self.table.update_schema() as update:
            update.add_column(column.name, kind, default_value=column.default)
        self.model.columns.append(column)

    def _make_branch(self) -> None:
        snapshot = self.table.current_snapshot()
        if snapshot is None:
            return
        self._note(f"Python makes the branch {SIDE}")
        self.table.manage_snapshots().create_branch(snapshot.snapshot_id, SIDE).commit()
        self.model.branches[SIDE] = dict(self.model.branches[MAIN])
        self.model.lineage[SIDE] = dict(self.model.lineage[MAIN])

    def _roll_back(self) -> None:
        metadata = self.table.metadata
        ancestors = [each.snapshot_id for each in ancestors_of(self.table.current_snapshot(), metadata)]
        if not (known := [number for number in ancestors if number in self.model.snapshots]):
            return
        number = self.random.choice(known)
        self.statements.sql(f"CALL {self.spark_catalog}.system.rollback_to_snapshot('{IDENTIFIER}', {number})")
        self.model.go_to(MAIN, number)

    def _repartition(self) -> None:
        """One more partition field, or one fewer."""
        fields = self.statements.fields
        former = [(key, form) for key, form, *_ in self.statements.former_fields]
        more = [field for field in MORE_FIELDS if self.model.has(field[0]) and (field[0], field[1]) not in former]
        spec = self.table.spec()
        if fields and (not more or self.random.random() < 0.5):
            place = self.random.randrange(len(fields))
            self._note(f"Python removes the partition field {spec.fields[place].name}")
            self.table.update_spec().remove_field(spec.fields[place].name).commit()
            self.statements.repartitioned([field for at, field in enumerate(fields) if at != place])
        elif more:
            field = self.random.choice(more)
            name = f"p{len(self.statements.former_fields)}"
            self._note(f"Python adds the partition field {name}: {field[2]}")
            self.table.update_spec().add_field(self.model.column(field[0]).name, field[2], name).commit()
            self.statements.repartitioned([*fields, field])

    def _note(self, what: str) -> None:
        self.statements.transcript.append(f"-- {what}")

    def lineage(self) -> dict[str, Any]:
        """The rows of the main branch under their names, by `id`, for a comparison with another engine."""
        return {"rows": self.model.shown(self.model.branches[MAIN], self.model.columns), "lineage": self.model.lineage[MAIN]}
