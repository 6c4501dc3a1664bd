"""Random statements of Spark SQL and DataFrameWriterV2 on one table, with what each must do to the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.spark.sql.conditions import Condition, Row, draw_condition, equals, is_in, same
from tests.spark.sql.partitionings import (
    DAY,
    FLAG,
    ID,
    INSTANT,
    ITEM,
    NUMBER,
    PART,
    PARTITIONINGS,
    PRICE,
    RATIO,
    REGION,
    TAGS,
    Field,
    partition_of,
)
from tests.spark.sql.table_model import MAIN, TableModel
from tests.spark.sql.values import WIDENED, Column, quoted, text
from tests.support.plaintext import CANARY
from tests.support.spark_release import FILLS_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = (
    Column(ID, "id", "bigint", required=True),
    Column(REGION, "region", "string", values=("eu", "us", "", "e'u", "null")),
    Column(ITEM, "item", "string", values=("aa1", "aa2", "ab", f"{CANARY} b", "größe", "")),
    Column(NUMBER, "n", "int"),
    Column(PRICE, "price", "decimal"),
    Column(RATIO, "ratio", "double", values=(math.nan, math.inf, -math.inf, -0.0, 0.0, 0.25, -7.5)),
    Column(INSTANT, "ts", "timestamp"),
    Column(DAY, "day", "date"),
    Column(FLAG, "order", "boolean"),
    Column(TAGS, "tags", "strings"),
    Column(PART, "part", "struct", fields=(Column(101, "a", "int"), Column(102, "B", "string"))),
)
NAMES: Final = ("alpha", "Beta", "gamma ray", "select", "naïve", "z-1")
Change = set[int]


class RandomStatements:
    """Runs statements on the table `name`, drawn one by one, and does to the model what each must do.

    `replaces` says whether some of them replace the table by a query: what follows then has little history.
    """

    def __init__(self, random: Random, spark: SparkSession, name: str, fields: Sequence[Field], *, replaces: bool) -> None:
        self.random = random
        self.spark = spark
        self.name = name
        self.fields = list(fields)
        self.former_fields = list(fields)
        self.replaces = replaces
        self.one_partitioning = True
        self.model = TableModel(list(COLUMNS))
        self.transcript: list[str] = []

    def create(self, properties: dict[str, str]) -> None:
        columns = ", ".join(f"{quoted(each.name)} {each.sql_type}{' NOT NULL' if each.required else ''}" for each in self.model.columns)
        partitions = ", ".join(self._partition_sql(field) for field in self.fields)
        clause = f"PARTITIONED BY ({partitions})" if partitions else ""
        settings = ", ".join(f"{text(name)} = {text(value)}" for name, value in properties.items())
        self.sql(f"CREATE TABLE {self.name} ({columns}) USING iceberg {clause} TBLPROPERTIES ({settings})")

    def write(self, branch: str) -> Change | None:
        """One statement that writes rows; the ids of rows that it changed, or None if it cannot run now."""
        kinds: list[Callable[[str], Change | None]] = [*[self._insert, self._merge] * 3, *[self._delete, self._update] * 2]
        kinds += [self._overwrite_dynamically, self._overwrite_by_filter, self._overwrite_partition, self._delete_partition]
        kinds += [self._replace] if self.replaces and branch == MAIN else []
        kinds += [self._overwrite_all] if self.random.random() < 0.3 else []
        return self.random.choice(kinds)(branch)

    def evolve(self) -> None:
        """One ALTER TABLE of the columns."""
        self.random.choice([self._add, self._add, self._rename, self._swap, self._drop, self._widen, self._add_field, self._rename_field])()

    def refused(self) -> str | None:
        """A statement that must fail, after some of its tasks ran or before; None if the table has too few rows for one."""
        rows = self.model.branches[MAIN]
        columns = self.model.columns
        identifier = quoted(columns[0].name)
        if not rows or not self.model.has(ITEM):
            return None
        item = quoted(self.model.column(ITEM).name)
        some = self.random.choice(sorted(rows))
        twice = f"(SELECT * FROM VALUES ({some}L, 'a'), ({some}L, 'b') AS v(id, item)) s"
        return self.random.choice(
            [
                *([f"INSERT INTO {self.name} SELECT {', '.join(map(_null, columns))}"] if columns[0].required else []),
                f"ALTER TABLE {self.name} ADD COLUMN later int DEFAULT year(current_date())",
                f"UPDATE {self.name} SET {item} = CAST(raise_error('stop') AS STRING) WHERE {identifier} = {some}",
                f"INSERT INTO {self.name} SELECT {', '.join(['id', *map(_failing_value, columns[1:])])} FROM range(0, 9, 1, 3)",
                f"MERGE INTO {self.name} t USING {twice} ON t.{identifier} = s.id WHEN MATCHED THEN UPDATE SET {item} = s.item",
            ]
        )

    def repartitioned(self, fields: Sequence[Field]) -> None:
        """From now on the table has these partition fields, and files of several partitionings."""
        self.former_fields += [field for field in fields if field not in self.former_fields]
        self.fields, self.one_partitioning = list(fields), False

    def condition(self, alias: str = "") -> Condition:
        """On any columns, or often on those alone that the table is partitioned by."""
        partitioned = self._columns_of_partitions() if self.random.random() < 0.3 else []
        return draw_condition(self.random, partitioned or self.model.columns, alias)

    def _columns_of_partitions(self) -> list[Column]:
        sources = {key for key, *_ in self.fields}
        return [column for column in self.model.columns if column.key in sources]

    # Statements that write.

    def _insert(self, branch: str) -> Change:
        rows = self.model.new_rows(self.random, self.random.randrange(1, 30))
        target = self.target(branch)
        columns = self.model.columns
        match self.random.choice(["values", "columns", "by name", "writer"]):
            case "values":
                self.sql(f"INSERT INTO {target} VALUES {self._tuples(rows, columns)}")
            case "columns":
                some = self.random.sample(columns[1:], self.random.randrange(len(columns)))
                some = some if FILLS_COLUMNS else columns
                columns = [columns[0], *(column for column in columns[1:] if column in some or column.default is not None)]
                kept = {column.key for column in columns}
                rows = [{key: value for key, value in row.items() if key in kept} for row in rows]
                self.sql(f"INSERT INTO {target} ({self._names(columns)}) VALUES {self._tuples(rows, columns)}")
                rows = [dict.fromkeys((column.key for column in self.model.columns), None) | row for row in rows]
            case "by name":
                self.sql(f"INSERT INTO {target} BY NAME {self._select(rows, self.random.sample(columns, len(columns)))}")
            case _:
                self._frame(rows).writeTo(self._noted(f"append {len(rows)} rows to", target)).append()
        self.model.add(branch, rows)
        return set()

    def _delete(self, branch: str) -> Change:
        condition = self._condition_on_a_query() if self.random.random() < 0.25 else self.condition()
        self.sql(f"DELETE FROM {self.target(branch)} WHERE {condition.sql}")
        self.model.keep(branch, condition)
        return set()

    def _condition_on_a_query(self) -> Condition:
        """IN or NOT IN what a query finds, of which one may be null."""
        column = self.random.choice([self.model.columns[0], *self._columns_of_partitions()])
        values = [column.draw(self.random) for _ in range(3)]
        if column.key == ID:
            values = [-1, *self.random.sample(range(self.model.next_id + 1), min(self.model.next_id, 5))]
        listed = ", ".join(f"({column.literal(value)})" for value in values)
        return is_in(column, values, f"SELECT k FROM VALUES {listed} AS v(k)", negated=self.random.random() < 0.2)

    def _delete_partition(self, branch: str) -> Change | None:
        """Whole partitions if the table is partitioned by region; otherwise single rows."""
        if not self.model.has(REGION):
            return None
        condition = equals(self.model.column(REGION), self.random.choice([*self.model.column(REGION).values, None]))
        self.sql(f"DELETE FROM {self.target(branch)} WHERE {condition.sql}")
        self.model.keep(branch, condition)
        return set()

    def _update(self, branch: str) -> Change:
        condition = self.condition()
        assignments = self._assignments()
        settings = ", ".join(f"{quoted(column.name)} = {sql}" for column, sql, _ in assignments)
        self.sql(f"UPDATE {self.target(branch)} SET {settings} WHERE {condition.sql}")
        changed = {key for key, row in self.model.branches[branch].items() if condition.holds(row)}
        self._assign(branch, changed, assignments)
        return changed

    def _merge(self, branch: str) -> Change:
        """Each clause is there or not; the first whose condition holds decides about a row."""
        columns, random = self.model.columns, self.random
        rows = self.model.branches[branch]
        sampled = random.sample(sorted(rows), min(len(rows), random.randrange(12)))
        inserted = self.model.new_rows(random, random.randrange(5))
        kinds = {key: random.choice(["delete", "update", "keep"]) for key in sampled}
        # A null as key matches no row, and neither inserts nor removes one.
        strays = [{**inserted[0], ID: None}] if inserted and random.random() < 0.3 else []
        source = [{**rows[key], ID: key} for key in sampled] + strays + inserted
        select = self._select(source, columns, [text("stray" if row[ID] is None else kinds.get(row[ID], "insert")) for row in source])
        also, matches = self._match()
        operation = {key: kind for key, kind in kinds.items() if matches.holds(rows[key])}
        deletes, updates, adds = (random.random() < 0.7 for _ in range(3))
        other = self.condition("t") if random.random() < 0.4 else None
        assignments = self._assignments("t")
        settings = ", ".join(f"t.{quoted(column.name)} = {sql}" for column, sql, _ in assignments)
        removes_others = random.random() < 0.5
        clauses = ["WHEN MATCHED AND s.op__ = 'delete' THEN DELETE"] if deletes else []
        clauses += [f"WHEN MATCHED AND s.op__ = 'update' THEN UPDATE SET {settings}"] if updates else []
        clauses += [self._insert_clause("AND s.op__ = 'insert'" if also or strays else "")] if adds else []
        if other:
            clauses.append(f"WHEN NOT MATCHED BY SOURCE AND ({other.sql}) THEN {'DELETE' if removes_others else f'UPDATE SET {settings}'}")
        if not clauses:
            return self._update(branch)
        key_name = quoted(columns[0].name)
        self.sql(f"MERGE INTO {self.target(branch)} t USING ({select}) s ON t.{key_name} = s.{key_name}{also} {' '.join(clauses)}")

        others = {key for key, row in rows.items() if key not in operation and other and other.holds(row)}
        changed = {key for key, kind in operation.items() if updates and kind == "update"} | (set() if removes_others else others)
        gone = {key for key, kind in operation.items() if deletes and kind == "delete"} | (others if removes_others else set())
        self._assign(branch, changed, assignments)
        self.model.branches[branch] = {key: row for key, row in self.model.branches[branch].items() if key not in gone}
        self.model.add(branch, inserted if adds else [])
        return changed

    def _match(self) -> tuple[str, Condition]:
        """What a MERGE asks of two rows of one `id`, as SQL, and of the table's row, since the source's row holds the same values."""
        draw = self.random.random()
        if draw < 0.5:
            return "", Condition("", lambda _row: True)
        if draw < 0.65:
            condition = self.condition("t")
            return f" AND ({condition.sql})", condition
        column = self.random.choice(self._columns_of_partitions() or [column for column in self.model.columns if column.ordered])
        condition = same(column, "t", "s", with_nulls=self.random.random() < 0.5)
        return f" AND {condition.sql}", condition

    def _insert_clause(self, also: str) -> str:
        if self.random.random() < 0.5:
            return f"WHEN NOT MATCHED {also} THEN INSERT *"
        names = [quoted(column.name) for column in self.model.columns]
        return f"WHEN NOT MATCHED {also} THEN INSERT ({', '.join(names)}) VALUES ({', '.join(f's.{name}' for name in names)})"

    def _overwrite_all(self, branch: str) -> Change:
        rows = self.model.new_rows(self.random, self.random.randrange(1, 20))
        with self._setting("spark.sql.sources.partitionOverwriteMode", "static"):
            self.sql(f"INSERT OVERWRITE {self.target(branch)} {self._select(rows, self.model.columns)}")
        self.model.branches[branch] = {}
        self.model.add(branch, rows)
        return set()

    def _overwrite_dynamically(self, branch: str) -> Change | None:
        if not self.fields or not self.one_partitioning:
            return None
        rows = self.model.new_rows(self.random, self.random.randrange(1, 6))
        if self.random.random() < 0.5:
            self._frame(rows).writeTo(
                self._noted(f"overwrite partitions by {len(rows)} rows of", self.target(branch))
            ).overwritePartitions()
        else:
            with self._setting("spark.sql.sources.partitionOverwriteMode", "dynamic"):
                self.sql(f"INSERT OVERWRITE {self.target(branch)} {self._select(rows, self.model.columns)}")
        hit = {partition_of(row, self.fields) for row in rows}
        self.model.keep(branch, Condition("", lambda row: partition_of(row, self.fields) in hit))
        self.model.add(branch, rows)
        return set()

    def _overwrite_by_filter(self, branch: str) -> Change | None:
        if not self._has_region_partitions():
            return None
        from pyspark.sql.functions import expr

        rows, condition = self._rows_of_a_region()
        self._frame(rows).writeTo(self._noted(f"overwrite {condition.sql} by {len(rows)} rows of", self.target(branch))).overwrite(
            expr(condition.sql)
        )
        self.model.keep(branch, condition)
        self.model.add(branch, rows)
        return set()

    def _overwrite_partition(self, branch: str) -> Change | None:
        if not self._has_region_partitions():
            return None
        rows, condition = self._rows_of_a_region()
        region = self.model.column(REGION)
        clause = f"PARTITION ({quoted(region.name)} = {'NULL' if (value := rows[0][REGION]) is None else text(value)})"
        select = self._select(rows, [column for column in self.model.columns if column.key != REGION])
        with self._setting("spark.sql.sources.partitionOverwriteMode", "static"):
            self.sql(f"INSERT OVERWRITE {self.target(branch)} {clause} {select}")
        self.model.keep(branch, condition)
        self.model.add(branch, rows)
        return set()

    def _replace(self, branch: str) -> Change:
        """CREATE OR REPLACE TABLE … AS SELECT: other rows, some of the columns in another order, one perhaps as text, other partitions."""
        columns, casts = self._columns_to_replace_by()
        fields = self._fields_to_replace_by(columns)
        partitions = ", ".join(self._partition_sql(field) for field in fields)
        rows, query = self._rows_to_replace_by()
        statement = self.random.choice(["CREATE OR REPLACE TABLE", "REPLACE TABLE"])
        clause = f"PARTITIONED BY ({partitions})" if partitions else ""
        self.sql(f"{statement} {self.name} USING iceberg {clause} AS SELECT {', '.join(casts)} FROM {query}")

        made = [{new.key: _as_text(row.get(old.key, old.default), old, new) for old, new in columns} for row in rows]
        self.model.columns = [new for _, new in columns]
        self.model.branches[branch], self.model.lineage[branch] = {}, {}
        self.model.add(branch, made)
        self.repartitioned(fields)
        self.one_partitioning = len(self.model.branches) == 1
        return set()

    def _columns_to_replace_by(self) -> tuple[list[tuple[Column, Column]], list[str]]:
        """Columns as they were and will be, and the SQL of the latter. Columns of the same name and type are the same ones."""
        identifier, *others = self.model.columns
        pairs = [(identifier, replace(identifier, required=False))]
        for column in self.random.sample(others, self.random.randint(min(len(others), max(len(others) - 3, 3)), len(others))):
            is_new = column.kind in ("int", "boolean") and self.random.random() < 0.3
            pairs.append((column, Column(self.model.new_key(), column.name, "string") if is_new else column))
        return pairs, [f"CAST({quoted(new.name)} AS {new.sql_type}) AS {quoted(new.name)}" for _, new in pairs]

    def _fields_to_replace_by(self, columns: Sequence[tuple[Column, Column]]) -> Sequence[Field]:
        keys = {new.key for _, new in columns}
        return self.random.choice([fields for fields in PARTITIONINGS if all(field[0] in keys for field in fields)])

    def _rows_to_replace_by(self) -> tuple[list[Row], str]:
        """New rows, or some of the table's own: these are other rows then, although they have the same `id`."""
        if self.random.random() < 0.5:
            condition = self.condition()
            return [row for row in self.model.branches[MAIN].values() if condition.holds(row)], f"{self.name} WHERE {condition.sql}"
        rows = self.model.new_rows(self.random, self.random.randrange(20))
        return rows, f"({self._select(rows, self.model.columns)})"

    def _has_region_partitions(self) -> bool:
        """Are all files of one partitioning, in which no file holds rows of two regions?"""
        return self.one_partitioning and any(key == REGION and form == "{}" for key, form, *_ in self.fields)

    def _rows_of_a_region(self) -> tuple[list[Row], Condition]:
        region = self.model.column(REGION)
        value = self.random.choice([*region.values, None])
        rows = [row | {REGION: value} for row in self.model.new_rows(self.random, self.random.randrange(1, 5))]
        return rows, equals(region, value)

    # Statements that change columns.

    def _add(self) -> None:
        kind = self.random.choice(["int", "string", "double", "decimal", "boolean"])
        column = Column(self.model.new_key(), self.free_name(), kind)
        at = self.random.randrange(1, len(self.model.columns) + 1)
        position = f"AFTER {quoted(self.model.columns[at - 1].name)}" if at < len(self.model.columns) else ""
        self.sql(f"ALTER TABLE {self.name} ADD COLUMN {quoted(column.name)} {column.sql_type} {position}")
        self.model.columns.insert(at, column)

    def _rename(self) -> None:
        column = self.random.choice(self.model.columns[1:])
        self._rename_to(column, self.free_name())

    def _swap(self) -> None:
        """Two columns exchange their names."""
        one, other = self.random.sample(self.model.columns[1:], 2)
        self._rename_to(one, "between")
        self._rename_to(other, one.name)
        self._rename_to(replace(one, name="between"), other.name)

    def _rename_to(self, column: Column, name: str) -> None:
        self.sql(f"ALTER TABLE {self.name} RENAME COLUMN {quoted(column.name)} TO {quoted(name)}")
        self.model.replace_column(column.key, name=name)

    def _drop(self) -> None:
        """A column that no partition is made of; the name is free for another column then."""
        kept = {ID, REGION, ITEM, *(key for key, *_ in self.former_fields)}
        free = [column for column in self.model.columns if column.key not in kept]
        if len(free) < 3:
            return self._add()
        column = self.random.choice(free)
        self.sql(f"ALTER TABLE {self.name} DROP COLUMN {quoted(column.name)}")
        self.model.columns.remove(column)
        return None

    def _widen(self) -> None:
        free = [column for column in self.model.columns if column.kind in WIDENED]
        if not free:
            return self._add()
        column = self.random.choice(free)
        wide = replace(column, kind=WIDENED[column.kind])
        self.sql(f"ALTER TABLE {self.name} ALTER COLUMN {quoted(column.name)} TYPE {wide.sql_type}")
        self.model.replace_column(column.key, kind=wide.kind)
        return None

    def _add_field(self) -> None:
        if not self.model.has(PART):
            return self._add()
        part = self.model.column(PART)
        field = Column(self.model.new_key(), f"f{self.model.next_key}", self.random.choice(["int", "string"]))
        self.sql(f"ALTER TABLE {self.name} ADD COLUMN {quoted(part.name)}.{quoted(field.name)} {field.sql_type}")
        self.model.replace_column(PART, fields=(*part.fields, field))
        return None

    def _rename_field(self) -> None:
        if not self.model.has(PART):
            return self._add()
        part = self.model.column(PART)
        field = self.random.choice(part.fields)
        new = replace(field, name=f"r{self.model.new_key()}")
        self.sql(f"ALTER TABLE {self.name} RENAME COLUMN {quoted(part.name)}.{quoted(field.name)} TO {quoted(new.name)}")
        self.model.replace_column(PART, fields=tuple(new if each is field else each for each in part.fields))
        return None

    # What the statements are made of.

    def _assignments(self, alias: str = "") -> list[tuple[Column, str, Callable[[Row], Any]]]:
        """Columns, the SQL of their new values, and the values for a row as it was."""
        columns = self.random.sample(self.model.columns[1:], self.random.randrange(1, 4))
        return [(column, *self._new_value(column, f"{alias}." if alias else "")) for column in columns]

    def _new_value(self, column: Column, prefix: str) -> tuple[str, Callable[[Row], Any]]:
        name = prefix + quoted(column.name)
        if column.kind in ("int", "bigint") and self.random.random() < 0.5:
            return f"{name} + 1", lambda row: _plus(row.get(column.key, column.default), 1)
        if column.kind == "string" and self.random.random() < 0.5:
            return f"concat({name}, 'x')", lambda row: _plus(row.get(column.key, column.default), "x")
        value = column.draw(self.random)
        return column.literal(value), lambda _row: value

    def _assign(self, branch: str, keys: Change, assignments: Sequence[tuple[Column, str, Callable[[Row], Any]]]) -> None:
        rows = self.model.branches[branch]
        for key in keys:
            rows[key] = rows[key] | {column.key: value(rows[key]) for column, _, value in assignments}

    def _select(self, rows: Sequence[Row], columns: Sequence[Column], operations: Sequence[str] | None = None) -> str:
        """A query of the rows, under the columns' names; `operations` is one more column for MERGE."""
        names = [quoted(column.name) for column in columns] + (["op__"] if operations is not None else [])
        if not rows:
            types = [column.sql_type for column in columns] + (["string"] if operations is not None else [])
            return f"SELECT {', '.join(f'CAST(NULL AS {kind}) AS {name}' for kind, name in zip(types, names, strict=True))} WHERE false"
        extra = [f", {each}" for each in operations] if operations is not None else [""] * len(rows)
        tuples = [f"({self._literals(row, columns)}{more})" for row, more in zip(rows, extra, strict=True)]
        return f"SELECT * FROM VALUES {', '.join(tuples)} AS v({', '.join(names)})"

    def _tuples(self, rows: Sequence[Row], columns: Sequence[Column]) -> str:
        return ", ".join(f"({self._literals(row, columns)})" for row in rows)

    def _literals(self, row: Row, columns: Sequence[Column]) -> str:
        return ", ".join(column.literal(row.get(column.key, column.default)) for column in columns)

    def _names(self, columns: Sequence[Column]) -> str:
        return ", ".join(quoted(column.name) for column in columns)

    def _frame(self, rows: Sequence[Row]) -> DataFrame:
        """The rows as a DataFrame of two partitions, whose columns come in another order than the table's."""
        columns = self.random.sample(self.model.columns, len(self.model.columns))
        return self.spark.sql(self._select(rows, columns)).repartition(2)

    def _partition_sql(self, field: Field) -> str:
        key, form, *_ = field
        return form.format(quoted(self.model.column(key).name))

    def free_name(self) -> str:
        taken = {column.name.lower() for column in self.model.columns}
        free = [name for name in NAMES if name.lower() not in taken]
        return self.random.choice(free) if free else f"c{self.model.new_key()}"

    def target(self, branch: str) -> str:
        return self.name if branch == MAIN else f"{self.name}.branch_{branch}"

    def _noted(self, what: str, target: str) -> str:
        self.transcript.append(f"-- {what} {target}")
        return target

    def sql(self, statement: str) -> None:
        self.transcript.append(statement)
        self.spark.sql(statement)

    @contextmanager
    def _setting(self, name: str, value: str) -> Iterator[None]:
        before = str(self.spark.conf.get(name))
        self.spark.conf.set(name, value)
        try:
            yield
        finally:
            self.spark.conf.set(name, before)


def _as_text(value: Any, old: Column, new: Column) -> Any:
    """The value in a column that may have become text."""
    return value if value is None or old.kind == new.kind else str(value).lower()


def _plus(value: Any, more: Any) -> Any:
    return None if value is None else value + more


def _null(column: Column) -> str:
    return f"CAST(NULL AS {column.sql_type})"


def _failing_value(column: Column) -> str:
    return "IF(id = 7, raise_error('stop'), 'x')" if column.key == ITEM else _null(column)
