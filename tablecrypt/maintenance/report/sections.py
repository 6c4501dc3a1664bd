"""The parts of a table's report: what it is, its partitions, its findings, its files."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from tablecrypt.maintenance._audit.findings import AuditedFile, Coverage, Finding, FindingKind, TableAudit, by_severity
from tablecrypt.maintenance.report.markup import age, chip, count, short, size, text

SHOWN_PARTITIONS: Final = 60
SHOWN_PLACES: Final = 40
SHOWN_FILES: Final = 2000


def facts(audit: TableAudit) -> str:
    """What the table is, as a list of names and values."""
    seals = Counter(file.seal.value for file in audit.files)
    lengths = Counter(file.key_length for file in audit.files if file.key_length is not None)
    rows = {
        "Master key": "none" if audit.key_id is None else f"<code>{text(audit.key_id)}</code>",
        "Data keys": ", ".join(f"{length * 8} bits in {count(number, 'file', 'files')}" for length, number in sorted(lengths.items())),
        "Snapshots": f"{audit.snapshots:,}",
        "Files": ", ".join(f"{number:,} {text(seal)}" for seal, number in sorted(seals.items())),
        "Bytes": size(sum(file.length or 0 for file in audit.files)),
        "Location": f"<code>{text(audit.location)}</code>",
        "Metadata": f"<code>{text(audit.metadata_location)}</code>",
    }
    return f"<dl>{''.join(f'<dt>{name}</dt><dd>{value}</dd>' for name, value in rows.items() if value)}</dl>"


def coverage(partitions: tuple[Coverage, ...]) -> str:
    """A bar for each partition, those with plaintext first."""
    ordered = sorted(partitions, key=lambda each: (each.share, each.partition))
    shown = ordered[: max(SHOWN_PARTITIONS, sum(each.share < 1 for each in ordered))]
    rows = "".join(_coverage_row(each) for each in shown)
    more = len(ordered) - len(shown)
    note = f'<p class="soft">{count(more, "more partition is", "more partitions are")} encrypted whole.</p>' if more else ""
    return (
        '<div class="scroll" tabindex="0" role="group" aria-label="Encrypted share of each partition"><table><thead><tr>'
        '<th scope="col">Partition</th><th scope="col">Encrypted</th><th scope="col" class="number">Share</th>'
        '<th scope="col" class="number">Files</th><th scope="col" class="number">Bytes</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{note}"
    )


def _coverage_row(each: Coverage) -> str:
    percent = f"{each.share:.0%}" if each.share in (0, 1) else f"{each.share * 100:.1f}%"
    label = text(f"{percent} of {each.partition or 'the table'} is encrypted")
    rest = "" if each.share == 1 else "<b></b>"
    return (
        f"<tr><td><code>{text(each.partition or '(not partitioned)')}</code></td>"
        f'<td><div class="bar" role="img" aria-label="{label}"><i style="width:{each.share * 100:.2f}%"></i>{rest}</div></td>'
        f'<td class="number">{percent}</td><td class="number">{each.encrypted_files:,} of {each.files:,}</td>'
        f'<td class="number">{size(each.bytes)}</td></tr>'
    )


def findings(found: Iterable[Finding]) -> str:
    """Findings, gravest first, those of one kind together."""
    groups = [(kind, list(each)) for kind, each in groupby(by_severity(found), key=lambda finding: finding.kind)]
    if not groups:
        return '<p class="soft">Nothing was found.</p>'
    return "".join(_group(kind, each) for kind, each in groups)


def _group(kind: FindingKind, found: list[Finding]) -> str:
    severity = kind.severity.label
    places = "".join(f"<li><code>{text(each.where)}</code><br>{text(each.message)}</li>" for each in found[:SHOWN_PLACES])
    more = len(found) - SHOWN_PLACES
    note = f"<li>and {more:,} more: the JSON report names all</li>" if more > 0 else ""
    return (
        f'<section class="finding left-{severity}"><p>{chip(severity, severity)} <strong>{text(kind.title)}</strong> '
        f'<span class="soft">· {len(found):,}</span></p><p class="soft">{text(kind.advice)}</p><ul>{places}{note}</ul></section>'
    )


def files(audited: tuple[AuditedFile, ...], now: dt.datetime) -> str:
    """Every file, folded up."""
    rows = "".join(_file_row(file, now) for file in audited[:SHOWN_FILES])
    more = len(audited) - SHOWN_FILES
    note = f'<p class="soft">and {more:,} more: the JSON report names all</p>' if more > 0 else ""
    return (
        f"<details><summary>{count(len(audited), 'file', 'files')} of the table</summary>"
        '<div class="scroll" tabindex="0" role="group" aria-label="Files of the table"><table><thead><tr>'
        '<th scope="col">File</th><th scope="col">Kind</th><th scope="col">Sealed</th><th scope="col" class="number">Key</th>'
        '<th scope="col">KEK</th><th scope="col" class="number">Age</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{note}</details>"
    )


def _file_row(file: AuditedFile, now: dt.datetime) -> str:
    style = "good" if file.seal.is_ciphertext and file.key_length is not None else "critical"
    key = "none" if file.key_length is None else f"{file.key_length * 8} bits"
    return (
        f"<tr><td><code>{text(file.location)}</code></td><td>{text(file.kind)}</td><td>{chip(style, file.seal.value)}</td>"
        f'<td class="number">{key}</td><td><code>{text(", ".join(short(kek) for kek in file.keks))}</code></td>'
        f'<td class="number">{text(age(file.written, now))}</td></tr>'
    )
