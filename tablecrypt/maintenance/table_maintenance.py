"""`table.maintenance`: the functions of this package as methods, beside PyIceberg's own.

    table.maintenance.compact(rewrite_all=True)        maintenance.compact(table, rewrite_all=True)
    table.maintenance.expire_snapshots()…              PyIceberg's

A method takes what the function takes, without the table, and returns and raises the same. `migrate` is missing: a
plaintext table's `maintenance` is PyIceberg's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MethodType
from typing import Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from pyiceberg.table import Table
from pyiceberg.table.maintenance import MaintenanceTable

from tablecrypt.maintenance._audit import audit
from tablecrypt.maintenance._describe import describe
from tablecrypt.maintenance._doctor import CheckUp, doctor
from tablecrypt.maintenance._key_rotation import prune_keys, rewrap, rotate_kek
from tablecrypt.maintenance._orphan_files import remove_orphan_files
from tablecrypt.maintenance._reencrypt import reencrypt
from tablecrypt.maintenance._relocate import relocate
from tablecrypt.maintenance._rescue import rescue
from tablecrypt.maintenance._shred import shred
from tablecrypt.maintenance._tables import name_of
from tablecrypt.maintenance._verify import verify
from tablecrypt.maintenance.columns.keys import rewrap_column_keks, rotate_column_keks, shred_column
from tablecrypt.maintenance.compaction import compact
from tablecrypt.maintenance.erasure.operation import erase
from tablecrypt.maintenance.reachable import inspect
from tablecrypt.table.table import EncryptedMaintenance

P = ParamSpec("P")
R = TypeVar("R")


class Operation(Generic[P, R]):
    """A function whose first argument is a table, as a method of what holds the table. Of the class, it is the function itself."""

    def __init__(self, function: Callable[Concatenate[Table, P], R]) -> None:
        self.function = function

    @overload
    def __get__(self, holder: None, owner: type[MaintenanceTable]) -> Callable[Concatenate[Table, P], R]: ...

    @overload
    def __get__(self, holder: MaintenanceTable, owner: type[MaintenanceTable]) -> Callable[P, R]: ...

    def __get__(
        self, holder: MaintenanceTable | None, owner: type[MaintenanceTable]
    ) -> Callable[P, R] | Callable[Concatenate[Table, P], R]:
        """Bind the function to the table, as Python binds a method: with its signature and its documentation."""
        return self.function if holder is None else cast("Callable[P, R]", MethodType(self.function, holder.tbl))


class TableMaintenance(EncryptedMaintenance):
    """What keeps one encrypted table in order. Each method is documented where its function is."""

    audit = Operation(audit)
    compact = Operation(compact)
    describe = Operation(describe)
    erase = Operation(erase)
    inspect = Operation(inspect)
    prune_keys = Operation(prune_keys)
    reencrypt = Operation(reencrypt)
    relocate = Operation(relocate)
    remove_orphan_files = Operation(remove_orphan_files)
    rescue = Operation(rescue)
    rewrap = Operation(rewrap)
    rewrap_column_keks = Operation(rewrap_column_keks)
    rotate_column_keks = Operation(rotate_column_keks)
    rotate_kek = Operation(rotate_kek)
    shred = Operation(shred)
    shred_column = Operation(shred_column)
    verify = Operation(verify)

    def doctor(self, *, key_ids: Sequence[str] = (), read_only: bool = False) -> CheckUp:
        """Try whether the table's catalog, key service and store let this client work: see `maintenance.doctor`."""
        return doctor(self.tbl.catalog, name_of(self.tbl), key_ids=key_ids, read_only=read_only)
