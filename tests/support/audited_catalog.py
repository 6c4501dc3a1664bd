"""The audit of a catalog as one meets it: tables in order, neglected, damaged and forgotten; and the one of a month before."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import hashlib
import json
from typing import Final

from tablecrypt.maintenance import Audit, Finding, FindingKind, TableAudit
from tablecrypt.maintenance._audit import AuditedFile, AuditedKek, AuditedSnapshot, Coverage
from tablecrypt.maintenance._audit.file_signatures import Signature

NOW: Final = dt.datetime(2026, 5, 4, 3, 2, tzinfo=dt.UTC)
LIFE: Final = dt.timedelta(days=730)
SALES: Final = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
PEOPLE: Final = "alias/people"


def days(number: float) -> dt.datetime:
    """The moment that many days before the audit."""
    return NOW - dt.timedelta(days=number)


def table_audit(
    name: str = "sales.orders",
    key_id: str | None = SALES,
    ages: tuple[int, ...] = (40,),
    partitions: tuple[str, ...] = ("region=north", "region=south"),
    files: int = 4,
    plain: int = 0,
    findings: tuple[Finding, ...] = (),
    life: dt.timedelta = LIFE,
) -> TableAudit:
    """One table with a KEK of each age, the first of which wraps new keys.

    Args:
        name: the table's.
        key_id: its master key; None for a plain table.
        ages: of its KEKs, in days.
        partitions: of its data.
        files: encrypted data files of each partition.
        plain: plaintext data files of the last partition.
        findings: what was found, beside what files say.
        life: how long a KEK wraps.
    """
    location = f"s3://lakehouse/{name.replace('.', '/')}"
    keks = tuple(_kek(name, key_id, number, age) for number, age in enumerate(ages)) if key_id else ()
    newest = (keks[0].key_id,) if keks else ()
    encrypted = [
        AuditedFile(
            f"{location}/data/{each}/{n:05}-{n}-f00d.parquet", "data", Signature.PARQUET, 32, newest, 48_000_000 + n, days(ages[0]), each
        )
        for each in partitions
        for n in range(files if key_id else 0)
    ]
    clear = [
        AuditedFile(f"{location}/data/{each}/export-{n}.parquet", "data", Signature.PLAINTEXT, None, (), 31_000_000 + n, days(9), each)
        for each in (partitions if key_id is None else partitions[-1:])
        for n in range(plain)
    ]
    lists = [
        AuditedFile(
            f"{location}/metadata/snap-{number}.avro", "manifest list", Signature.AGS1, 32, (kek.key_id,), 4_100, days(ages[number]), ""
        )
        for number, kek in enumerate(keks)
    ]
    snapshots = [
        AuditedSnapshot(4_100_000_000_000 + 7919 * (age * 10 + n), days(age - n), key_id is not None, kek.key_id, ())
        for kek, age in zip(keks, ages, strict=False)
        for n in range(min(3, age))
    ]
    history = sorted(snapshots, key=lambda each: each.made)
    if history:
        history[-1] = dataclasses.replace(history[-1], refs=("main",))
    return TableAudit(
        table=name,
        location=location,
        metadata_location=f"{location}/metadata/00012-9f1c.metadata.json",
        key_id=key_id,
        data_key_length=32 if key_id else None,
        kek_lifespan=life if key_id else None,
        snapshots=tuple(history),
        keks=keks,
        files=(*encrypted, *clear, *lists),
        partitions=tuple(_coverage(each, [file for file in (*encrypted, *clear) if file.partition == each]) for each in partitions),
        findings=(
            *(Finding(FindingKind.PLAINTEXT_FILE, each.location, "data: begins like plaintext Parquet") for each in clear if key_id),
            *findings,
        ),
    )


def unloaded(name: str, kind: FindingKind, message: str) -> TableAudit:
    """A table that could not be looked into."""
    return TableAudit(name, "", "", None, None, None, (), (), (), (), (Finding(kind, name, message),))


def audited_catalog() -> Audit:
    """A catalog of nine tables, of which one is plain, two hold plaintext, one cannot be opened and four are in order."""
    ledger = table_audit("finance.ledger", ages=(310,), partitions=("year=2024", "year=2025", "year=2026"), files=6)
    stale = f"{ledger.location}/metadata/00000-2b7e.metadata.json"
    readings = table_audit("iot.readings", ages=(700, 1900), partitions=tuple(f"day=2026-04-{each:02}" for each in range(1, 29)), files=3)
    return Audit(
        catalog="lakehouse",
        is_whole=True,
        moment=NOW,
        tables=(
            dataclasses.replace(
                ledger,
                findings=(
                    Finding(FindingKind.STALE_PLAINTEXT_METADATA, stale, "format version 2 without encryption.key-id, with 4 snapshots"),
                    Finding(
                        FindingKind.PINS_MISSING,
                        "finance.ledger",
                        "neither the catalog nor a file of this client records what was seen of it",
                    ),
                ),
            ),
            table_audit(
                "hr.candidates",
                key_id=None,
                partitions=("",),
                plain=5,
                findings=(
                    Finding(FindingKind.PLAIN_TABLE, "hr.candidates", "has no encryption.key-id, and none of its 5 files is encrypted"),
                ),
            ),
            table_audit("hr.salaries", key_id=PEOPLE, ages=(12, 744), partitions=("",), files=3, life=dt.timedelta(days=365)),
            unloaded("hr.reviews", FindingKind.KEY_REFUSED, "KmsAccessDeniedError: alias/reviews may not be used by this identity"),
            _with_past_kek(readings),
            table_audit("sales.customers", ages=(85,), partitions=("country=DE", "country=FR", "country=IT"), files=5),
            table_audit("sales.orders", ages=(40, 500), files=12, plain=2),
            table_audit("sales.returns", ages=(3,), files=2),
            table_audit(
                "web.events",
                key_id=PEOPLE,
                ages=(668,),
                partitions=("",),
                files=40,
                findings=(
                    Finding(
                        FindingKind.ORPHANS,
                        "the table's folder",
                        "3 with 141000 bytes, such as s3://lakehouse/web/events/data/00003-1-dead.parquet",
                    ),
                ),
            ),
        ),
    )


def audit_a_month_before() -> str:
    """The JSON that the catalog's audit was kept as a month before: with another finding, without the plaintext, under an older KEK."""
    now = audited_catalog()
    tables = {each.table: each for each in now.tables}
    orders = table_audit("sales.orders", ages=(500,), files=12)
    lost = Finding(
        FindingKind.MISSING_FILE, f"{orders.location}/data/region=south/00003-3-f00d.parquet", "the data file is not in the store"
    )
    tables["sales.orders"] = dataclasses.replace(orders, findings=(lost,))
    tables["archive.logs"] = table_audit("archive.logs", ages=(200,))
    del tables["sales.returns"]
    kept = dataclasses.replace(now, moment=days(30), tables=tuple(tables[name] for name in sorted(tables)))
    return json.dumps(kept.to_json())


def _kek(name: str, key_id: str | None, number: int, age: int) -> AuditedKek:
    key = base64.b64encode(hashlib.sha256(f"{name} {age}".encode()).digest()[:16]).decode()
    return AuditedKek(key, key_id, days(age), 32, number == 0, min(3, age), 2 + age % 5, 4 + age % 9)


def _with_past_kek(table: TableAudit) -> TableAudit:
    past = Finding(
        FindingKind.KEK_PAST_LIFE,
        table.keks[-1].key_id,
        "is 1900 days old and still needed to read: more than its life of 730 days and three years",
    )
    near = Finding(FindingKind.KEK_NEAR_END, table.keks[0].key_id, "is 700 days old; at 730 days the next writer makes a new one")
    return dataclasses.replace(table, findings=(past, near))


def _coverage(partition: str, files: list[AuditedFile]) -> Coverage:
    encrypted = [file for file in files if file.signature.is_ciphertext]
    return Coverage(partition, len(files), len(encrypted), sum(f.length or 0 for f in files), sum(f.length or 0 for f in encrypted))
