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

from tablecrypt import maintenance
from tablecrypt.table.table import EncryptedMaintenance
from tablecrypt.table.table_files import name_of

P = ParamSpec("P")
R = TypeVar("R")


class Method(Generic[P, R]):
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
    """What keeps one encrypted table in order. Each method is documented where its function is.

    The list is written out, as editors and type checkers read it; a test holds it to the declared operations.
    """

    accept_update = Method(maintenance.accept_update)
    audit = Method(maintenance.audit)
    compact = Method(maintenance.compact)
    describe = Method(maintenance.describe)
    erase = Method(maintenance.erase)
    inspect = Method(maintenance.inspect)
    prune_keys = Method(maintenance.prune_keys)
    reencrypt = Method(maintenance.reencrypt)
    relocate = Method(maintenance.relocate)
    remove_orphan_files = Method(maintenance.remove_orphan_files)
    rescue = Method(maintenance.rescue)
    rewrap = Method(maintenance.rewrap)
    rewrap_column_keks = Method(maintenance.rewrap_column_keks)
    rotate_column_keks = Method(maintenance.rotate_column_keks)
    rotate_kek = Method(maintenance.rotate_kek)
    share = Method(maintenance.share)
    shares = Method(maintenance.shares)
    shred = Method(maintenance.shred)
    shred_column = Method(maintenance.shred_column)
    unshare = Method(maintenance.unshare)
    verify = Method(maintenance.verify)

    def doctor(self, *, key_ids: Sequence[str] = (), read_only: bool = False) -> maintenance.CheckUp:
        """Try whether the table's catalog, key service and store let this client work: see `maintenance.doctor`."""
        return maintenance.doctor(self.tbl.catalog, name_of(self.tbl), key_ids=key_ids, read_only=read_only)
