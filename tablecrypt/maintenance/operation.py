"""What every operation has: what it asks first of tables and arguments, how far it is while it works, and what it says at the end.

Each check raises ConfigurationError, which says what is allowed. A listener hears of progress from the thread that called the operation.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import ClassVar, Final, Literal, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyparsing import ParseBaseException

from tablecrypt.arguments import check_name_parts, described, names_of
from tablecrypt.errors import ConfigurationError
from tablecrypt.files.deletion import DeletionScope
from tablecrypt.printable import AsJson, shell_word, sql_string
from tablecrypt.setting_kinds import nearest
from tablecrypt.table._pyiceberg.transactions import parse_row_filter
from tablecrypt.table.filters import fitted
from tablecrypt.table.planning import FileCondition
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of

T = TypeVar("T")
Unit = Literal["files", "bytes", "keys", "snapshots"]

EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NO_SUCH_COLUMN: Final = re.compile(r"Could not find field with name (?P<name>.+), case_sensitive=True")


def require_encrypted(table: Table, advice: str = "") -> EncryptedTable:
    """Return a table as what it is.

    Raises:
        ConfigurationError: it is not encrypted; with what to do about it, where the caller knows.
    """
    if not isinstance(table, EncryptedTable):
        raise ConfigurationError(f"{name_of(table)} is not an encrypted table{advice and ': '}{advice}")
    return table


def metadata_folder(metadata: TableMetadata) -> str:
    """Return where a table's metadata files are, unless its properties name another folder; and its journals always."""
    return f"{metadata.location.rstrip('/')}/metadata"


def reload(table: Table) -> EncryptedTable:
    """Load a table again, as its catalog has it now.

    Raises:
        ConfigurationError: it is not encrypted.
    """
    return require_encrypted(require_encrypted(table).catalog.load_table(table.name()))


def checked_filter(table: Table, where: str | BooleanExpression, what: str = "the filter") -> BooleanExpression:
    """Return a filter that fits the table's columns, as scans have it. Errors name no argument: each caller has its own."""
    try:
        parsed = parse_row_filter(where)
    except ParseBaseException as wrong:
        raise ConfigurationError(f"{what} cannot be parsed: {where!r}; a valid one is: region = 'north' and total > 3") from wrong
    except ValueError as wrong:
        raise ConfigurationError(f"{what} cannot be used: {where!r}: {wrong}") from wrong

    if not isinstance(parsed, BooleanExpression):
        raise ConfigurationError(f"a filter is text such as \"region = 'north'\", or an expression, and not {described(where)}")

    if isinstance(parsed, AlwaysTrue):
        return parsed

    try:
        fit = fitted(parsed, table.schema())
        bind(table.schema(), fit, case_sensitive=True)
    except ConfigurationError:
        raise  # it is a ValueError too
    except (ValueError, TypeError) as wrong:
        raise ConfigurationError(f"{what} does not fit {name_of(table)}: {_misfit(table, str(wrong))}") from wrong

    return fit


def checked_condition(table: Table, where: str | BooleanExpression | FileCondition) -> FileCondition:
    """Return which files a filter wants that fits the table's columns. Raises as `checked_filter`."""
    return where if isinstance(where, FileCondition) else FileCondition(checked_filter(table, where))


def _misfit(table: Table, said: str) -> str:
    """Return in our words what PyIceberg says of a filter by a column that a table does not have."""
    missing = _NO_SUCH_COLUMN.fullmatch(said)
    if missing is None:
        return said

    columns = {column.lower(): column for column in table.schema().column_names}
    near = nearest(missing["name"].lower(), columns)
    advice = f". Did you mean {columns[near]}?" if near is not None else f"; its columns are {', '.join(columns.values())}"

    return f"it has no column {missing['name']}{advice}"


def checked_moment(name: str, moment: dt.datetime) -> dt.datetime:
    """Return a moment that has a time zone."""
    if not isinstance(moment, dt.datetime):
        raise ConfigurationError(f"{name} is a {type(moment).__name__}; it must be a datetime with a time zone")
    if moment.tzinfo is None:
        raise ConfigurationError(f"{name} has no time zone")
    return moment


def snapshot_ids(snapshots: Sequence[int]) -> frozenset[int]:
    """Return snapshot ids as a set. The name of a tag is none, nor is an id in quotes: nothing would go by it, without an error."""
    try:
        # Bytes are numbers to Python.
        if isinstance(snapshots, (bytes, bytearray, memoryview)):
            raise TypeError
        return frozenset(index(each) for each in snapshots)
    except TypeError:
        raise ConfigurationError(f"snapshots is {described(snapshots)}; it must be a list of snapshot ids, whole numbers") from None


def moment_of(milliseconds: int) -> dt.datetime:
    """Return the moment so many milliseconds after 1970 began. OverflowError beyond what a datetime holds."""
    return EPOCH + dt.timedelta(milliseconds=milliseconds)


def check_own_manifests(table: EncryptedTable, manifests: Iterable[str], manifests_below: Sequence[str]) -> None:
    """Refuse to give a table's keys to other readers while its snapshots may be another table's.

    metadata.json is not authenticated, and another table's snapshots and keys may have been put into it. A manifest list is
    authenticated, and says where its manifests lie.

    Args:
        table: as it was loaded: its FileIO knows the folders that a pin, or the place of the metadata file in the catalog, says.
        manifests: locations of manifests, from authenticated manifest lists.
        manifests_below: folders that the caller says are this table's and no other's.

    Raises:
        ConfigurationError: a manifest lies elsewhere.
    """
    # What the metadata says of its location counts for nothing: an attacker who put the snapshots there could edit that too.
    known = table.io.deletable
    own = DeletionScope(known.folders, (*known.named, *names_of("manifests_below", manifests_below)))
    for manifest in manifests:
        if not own.contains(manifest):
            folder = manifest.rpartition("/")[0]
            raise ConfigurationError(
                f"{name_of(table)}: {manifest} is outside the folders of which this client knows that they are the table's, so the "
                "snapshot and its keys may be another table's. Nothing was changed. Find out whose folder it is; if it is this table's and "
                f"no other's, name it: manifests_below=[{folder!r}], --manifests-below {shell_word(folder)}, or in SQL "
                f"manifests_below => array({sql_string(folder)})"
            )


def check_manifests_below_count(manifests_below: Sequence[str], name: str, key_id: str | None) -> None:
    """Refuse folders that `check_own_manifests` would not be asked about: `name` is the argument that names another master key."""
    if manifests_below and key_id is None:
        raise ConfigurationError(
            f"manifests_below (--manifests-below) counts only with {name} (--{name.replace('_', '-')}), for keys that another master key "
            "wraps: leave it out, or name that key"
        )


def check_new_name(catalog: Catalog, name: str) -> None:
    """Refuse a name that no table of the catalog can get: without a namespace, with an empty part, or in one that is not there."""
    namespace = name.rpartition(".")[0]
    if not namespace:
        raise ConfigurationError(f"{name!r} is not a table's name: write namespace.name")
    check_name_parts(name)
    if not catalog.namespace_exists(namespace):
        raise ConfigurationError(f"there is no namespace {namespace} for {name}: create it first")


@dataclass(frozen=True)
class OperationResult(AsJson):
    """What every operation's result says.

    For people a result has a method `summary`, one sentence. Fields that have `printable.shown` follow it as details.

    Attributes:
        table: the table's name.
        dry_run: whether the operation only looked: then the rest says what it would have done.
        also_says: properties that follow from the fields and stand beside them in JSON and SQL, by their names there.
    """

    table: str
    dry_run: bool
    also_says: ClassVar[Mapping[str, str]] = {}

    def _did(self, done: str, planned: str) -> str:
        """Return the words for what was done, or for what a dry run says would be."""
        return planned if self.dry_run else done


@dataclass(frozen=True)
class Progress:
    """How far an operation has come.

    Attributes:
        operation: name of the operation and, where it has several, of its phase: "verify", "migrate: files".
        done: how much is done, in `unit`. Only grows within a phase.
        total: how much there is, in `unit`.
    """

    operation: str
    done: int
    total: int
    unit: Unit


ProgressListener = Callable[[Progress], None]
"""A function that is called with each step. What it raises stops the operation, as a kill does."""


class Counted:
    """Tells a listener of a phase's steps, one by one.

    A phase that starts again because others committed meanwhile is reported again only after it passes its earlier mark.

    Args:
        operation, unit: as in `Progress`.
        listener: is called with each step.
    """

    def __init__(self, operation: str, unit: Unit, listener: ProgressListener) -> None:
        self._operation = operation
        self._unit: Unit = unit
        self._listener = listener
        self._furthest = -1

    def track(self, items: Collection[T]) -> Iterator[T]:
        """Yield each item; it counts as done when the next one is asked for."""
        self._tell(0, len(items))
        for done, item in enumerate(items, start=1):
            yield item
            self._tell(done, len(items))

    def _tell(self, done: int, total: int) -> None:
        if done > self._furthest:
            self._furthest = done
            self._listener(Progress(self._operation, done, total, self._unit))


def no_progress(progress: Progress) -> None:
    """Ignore progress."""
