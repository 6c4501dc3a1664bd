"""Auditing a table, or every table of a catalog: what is encrypted, how, under which keys, and what is not.

    catalog ─▶ table ─▶ metadata ──▶ keys: ages, gaps, leftovers
                           ├──▶ manifest lists, manifests ─▶ every file with its key ─┐
                           ├──▶ older metadata files                                  ├─▶ both ends of each: ciphertext, AES_GCM_V1?
                           └──▶ the table's folders ─▶ files that nothing names ──────┘

Of data files the first four bytes are read, and of Parquet the last 64 KiB, so an audit takes seconds where verifying takes hours. It says
what a file claims to be; whether it authenticates is for verifying to say.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from tablecrypt import properties as names
from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import (
    ConfigurationError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    KmsError,
    MasterKeyRefusedError,
    TablecryptError,
)
from tablecrypt.maintenance._tables import checked_moment, name_of
from tablecrypt.maintenance.audit.findings import Finding, FindingKind
from tablecrypt.maintenance.audit.result import Audit, TableAudit
from tablecrypt.maintenance.audit.table_audit import audit_table
from tablecrypt.maintenance.catalog_tables import identifiers_of
from tablecrypt.maintenance.progress import Counted, ProgressListener, unheard
from tablecrypt.table.plain_tables import plain_tables_opened

logger = logging.getLogger(__name__)


@runtime_checkable
class PinsTables(Protocol):
    """A catalog that can say where it remembers what it has seen of its encrypted tables."""

    @property
    def pin_places(self) -> tuple[str, ...]:
        """Where pins are kept, for people to read; none at all when nothing is pinned."""


@runtime_checkable
class PinsEntries(PinsTables, Protocol):
    """A catalog whose entries may lack a pin of the current metadata."""

    def unpinned_metadata(self, identifier: str | Identifier) -> str | None:
        """Return why a table's current metadata has no pin, for people to read; None where it has one."""


@checked_arguments(but=("now",))
def audit(
    target: Table | Catalog,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    now: dt.datetime | None = None,
    progress: ProgressListener = unheard,
) -> Audit:
    """Look through a table, or all tables of a catalog, for plaintext and for keys that need care.

    Args:
        target: a table as it was loaded, or a catalog.
        include: of a catalog, globs of the names of tables to look through, `db.*`; none: all.
        exclude: of a catalog, globs of names to leave out.
        now: the moment to tell ages at, with a time zone.
        progress: told how many files were looked at.

    Raises:
        ConfigurationError: `now` has no time zone, a glob matches no table or stands beside one, or the key service cannot be asked as
            it is configured.
        KmsError, KeyNotFoundError: the key service failed, or refused every KEK of the table: without it nothing below the metadata can be
            seen. Of a catalog, a table that it refuses is a finding.
    """
    moment = dt.datetime.now(dt.UTC) if now is None else checked_moment("now", now)
    if isinstance(target, Table):
        if include or exclude:
            raise ConfigurationError(f"include and exclude choose among the tables of a catalog, but {name_of(target)} is one table")
        return Audit(moment, (_audited(target, moment, progress),))
    tables = [_of_catalog(target, identifier, moment, progress) for identifier in identifiers_of(target, include, exclude)]
    return Audit(moment, tuple(table for table in tables if table is not None))


def _audited(table: Table, moment: dt.datetime, progress: ProgressListener) -> TableAudit:
    return audit_table(table, moment, _pins_findings(table), Counted("audit", "files", progress))


def _of_catalog(catalog: Catalog, identifier: Identifier, moment: dt.datetime, progress: ProgressListener) -> TableAudit | None:
    try:
        with plain_tables_opened():
            table = catalog.load_table(identifier)
    except NoSuchTableError:
        logger.debug("%s was dropped meanwhile", identifier)
        return None
    except KmsError:
        raise
    except MasterKeyRefusedError as error:
        return _unseen(identifier, FindingKind.KEY_NOT_ALLOWED, error)
    except (TablecryptError, FileNotFoundError) as error:
        return _unseen(identifier, FindingKind.REFUSED_TABLE, error)
    try:
        return _audited(table, moment, progress)
    except (KmsAccessDeniedError, KeyNotFoundError) as error:
        return _unseen(identifier, FindingKind.KEY_REFUSED, error)


def _unseen(identifier: Identifier, kind: FindingKind, error: Exception) -> TableAudit:
    """Return the audit of a table that could not be looked into."""
    name = ".".join(identifier)
    return TableAudit(name, "", "", None, None, 0, (), (), (), (Finding(kind, name, f"{type(error).__name__}: {error}"),))


def _pins_findings(table: Table) -> tuple[Finding, ...]:
    if names.KEY_ID.name not in table.metadata.properties:
        return ()
    catalog, message = table.catalog, None
    if isinstance(catalog, PinsEntries):
        message = catalog.unpinned_metadata(table.name())
    elif not (isinstance(catalog, PinsTables) and catalog.pin_places):
        message = f"neither the catalog nor a file of this client ({names.PINS.name}) remembers what was seen of it"
    return () if message is None else (Finding(FindingKind.PINS_MISSING, ".".join(table.name()), message),)
