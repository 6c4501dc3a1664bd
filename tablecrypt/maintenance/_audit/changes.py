"""What changed between two audits of a catalog: the earlier one is read from the JSON that it was kept as.

A finding is the same one if its kind and its place are the same. Its message may differ: that of a key tells an age, which grows by itself
and is no change; any other counts as changed.

The earlier audit is a file that may have been edited, so nothing in it is taken to be there: what is not the JSON of an audit is refused,
and so is one of another catalog, or of a later moment. A table that only one of the two looked at is new or gone only if the other looked
at the whole catalog.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from tablecrypt._parsed_json import problem_of
from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance._audit.findings import Audit, FindingKind, TableAudit
from tablecrypt.printable import AsJson, counted

_TELL_AGES: Final = frozenset(kind.code for kind in (FindingKind.KEK_PAST_LIFE, FindingKind.KEK_RETIRED, FindingKind.KEK_NEAR_END))


class TableChangeKind(StrEnum):
    """What became of a table between two audits."""

    NEW = "new"
    GONE = "gone"
    CHANGED = "changed"


@dataclass(frozen=True)
class ChangedFinding:
    """A finding that is new, gone, or has another message.

    Attributes:
        kind, severity, where, message: as in the audit that has it; in the newer one if both do.
        before: the earlier message, if it changed.
    """

    kind: str
    severity: str
    where: str
    message: str
    before: str | None = None


@dataclass(frozen=True)
class TableChanges:
    """What changed in one table.

    Attributes:
        table: its name.
        state: whether it is new, gone or changed.
        new, gone, changed: findings.
        keys: what happened to its master key and KEKs, one sentence each.
        encrypted_before, encrypted_now: share of the bytes of its data that are encrypted, 0 to 1; None without a table.
    """

    table: str
    state: TableChangeKind
    new: tuple[ChangedFinding, ...]
    gone: tuple[ChangedFinding, ...]
    changed: tuple[ChangedFinding, ...]
    keys: tuple[str, ...]
    encrypted_before: float | None
    encrypted_now: float | None

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""
        same_share = self.encrypted_before == self.encrypted_now
        return self.state == TableChangeKind.CHANGED and same_share and not (self.new or self.gone or self.changed or self.keys)


@dataclass(frozen=True)
class AuditChanges(AsJson):
    """What changed since an earlier audit.

    Attributes:
        since: the moment of the earlier audit.
        tables: those in which something changed, by name.
    """

    since: dt.datetime
    tables: tuple[TableChanges, ...]

    @property
    def new(self) -> tuple[ChangedFinding, ...]:
        """All findings that the earlier audit did not have."""
        return tuple(finding for table in self.tables for finding in table.new)

    @property
    def gone(self) -> tuple[ChangedFinding, ...]:
        """All findings that only the earlier audit had."""
        return tuple(finding for table in self.tables for finding in table.gone)


class _Kept(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _KeptFinding(_Kept):
    kind: str
    severity: str
    where: str
    message: str


class _KeptKek(_Kept):
    key_id: str
    encrypted_by_id: str | None


class _KeptPartition(_Kept):
    bytes: Annotated[int, Field(ge=0)]
    encrypted_bytes: Annotated[int, Field(ge=0)]


class _KeptTable(_Kept):
    table: str
    key_id: str | None
    findings: tuple[_KeptFinding, ...]
    keks: tuple[_KeptKek, ...]
    partitions: tuple[_KeptPartition, ...]


class _KeptAudit(_Kept):
    catalog: str
    whole_catalog: bool
    moment: AwareDatetime
    tables: tuple[_KeptTable, ...]


@checked_arguments()
def changes_since(found: Audit, earlier: str) -> AuditChanges:
    """Compare an audit with an earlier one.

    Args:
        found: the newer audit.
        earlier: the JSON of the earlier one, as `tablecrypt audit --json` prints it.

    Raises:
        ConfigurationError: it is not the JSON of an audit, or of another catalog, or of a later moment.
    """
    kept = _read(earlier)
    # Compared across catalogs, every finding would look resolved and every table gone.
    if kept.catalog != found.catalog:
        raise ConfigurationError(
            f"the earlier audit is of catalog {kept.catalog}, and this one of {found.catalog}: name one of {found.catalog}"
        )
    # Compared backwards, what was resolved since would look new.
    if kept.moment > found.moment:
        raise ConfigurationError(f"the earlier audit is of {kept.moment.isoformat()}, which is after this one, {found.moment.isoformat()}")

    before, now = {each.table: each for each in kept.tables}, {each.table: each for each in found.tables}
    changes = [_of_table(name, before.get(name), now.get(name)) for name in sorted({*before, *now}) if _is_compared(name, kept, found)]

    return AuditChanges(kept.moment, tuple(each for each in changes if not each.is_empty))


def _read(earlier: str) -> _KeptAudit:
    if not earlier.strip():
        raise ConfigurationError("the earlier audit is empty; if the new one is printed into the same file, choose another")

    try:
        return _KeptAudit.model_validate_json(earlier)
    except ValidationError as wrong:
        # Without the cause: pydantic would print parts of the kept file, which lists files and keys.
        raise ConfigurationError(f"the earlier audit is not what `tablecrypt audit --json` prints: {problem_of(wrong)}") from None


def _is_compared(name: str, kept: _KeptAudit, found: Audit) -> bool:
    """Whether both audits can say something of a table."""
    is_before = kept.whole_catalog or any(each.table == name for each in kept.tables)
    return is_before and (found.is_whole or any(each.table == name for each in found.tables))


def _of_table(name: str, before: _KeptTable | None, now: TableAudit | None) -> TableChanges:
    state = TableChangeKind.NEW if before is None else TableChangeKind.GONE if now is None else TableChangeKind.CHANGED
    earlier, later = _by_place(() if before is None else before.findings), _by_place(_kept_findings(now))
    return TableChanges(
        table=name,
        state=state,
        new=tuple(_changed(later[each]) for each in later if each not in earlier),
        # Of a table that could not be opened this time nothing is known, and nothing is resolved by that.
        gone=tuple(_changed(earlier[each]) for each in earlier if each not in later and (now is None or now.location)),
        changed=tuple(
            _changed(later[each], before=earlier[each].message) for each in later if each in earlier and _differ(earlier[each], later[each])
        ),
        keys=() if before is None or now is None else tuple(_key_changes(before, now)),
        encrypted_before=None if before is None else _share(before.partitions),
        encrypted_now=None
        if now is None
        else _share([_KeptPartition(bytes=p.bytes, encrypted_bytes=p.encrypted_bytes) for p in now.partitions]),
    )


def _kept_findings(now: TableAudit | None) -> Iterator[_KeptFinding]:
    for each in () if now is None else now.findings:
        yield _KeptFinding(kind=each.kind.code, severity=each.severity.label, where=each.where, message=each.message)


def _by_place(findings: Sequence[_KeptFinding] | Iterator[_KeptFinding]) -> dict[tuple[str, str], _KeptFinding]:
    return {(each.kind, each.where): each for each in findings}


def _differ(before: _KeptFinding, now: _KeptFinding) -> bool:
    return before.message != now.message and now.kind not in _TELL_AGES


def _changed(finding: _KeptFinding, before: str | None = None) -> ChangedFinding:
    return ChangedFinding(finding.kind, finding.severity, finding.where, finding.message, before)


def _key_changes(before: _KeptTable, now: TableAudit) -> Iterator[str]:
    # A table that could not be opened this time has no keys here. A finding says so, and no key has changed.
    if before.key_id != now.key_id and now.location:
        yield f"The master key was {before.key_id or 'none'} and is now {now.key_id or 'none'}."
    earlier, later = {each.key_id: each for each in before.keks}, {each.key_id: each for each in now.keks}
    for key_id, kek in later.items():
        if key_id not in earlier:
            yield f"KEK {key_id} is new."
        elif kek.encrypted_by_id != earlier[key_id].encrypted_by_id:
            was, now_by = earlier[key_id].encrypted_by_id or "nothing", kek.encrypted_by_id or "nothing"
            yield f"KEK {key_id} was wrapped by {was}, and is now wrapped by {now_by}."

    removed = [key_id for key_id in earlier if key_id not in later]
    if removed and now.location:
        yield f"{counted(len(removed), 'KEK is', 'KEKs are')} gone: {', '.join(removed)}."


def _share(partitions: Sequence[_KeptPartition]) -> float | None:
    total = sum(each.bytes for each in partitions)
    return sum(each.encrypted_bytes for each in partitions) / total if total else None
