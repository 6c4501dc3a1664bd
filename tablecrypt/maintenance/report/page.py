"""One HTML page of an audit: verdict, and for each table the key tree, the coverage of its partitions, findings and files.

It loads nothing: style and drawings are in it, there is no script, and its Content-Security-Policy forbids both to whatever a name in a
table may try. It holds file names, key ids and partition values, as the JSON report does, and no key.
"""

from __future__ import annotations

from collections import Counter

from tablecrypt.maintenance._audit.findings import Audit, Severity, TableAudit
from tablecrypt.maintenance.report import sections
from tablecrypt.maintenance.report.key_tree import key_tree
from tablecrypt.maintenance.report.markup import chip, count, text
from tablecrypt.maintenance.report.style import STYLE

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html_page(audit: Audit) -> str:
    """Return the page as text, to be written as UTF-8."""
    name = audit.tables[0].table if len(audit.tables) == 1 else count(len(audit.tables), "table", "tables")
    tables = "".join(_table(table, audit, index) for index, table in enumerate(audit.tables))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>Encryption audit of {text(name)}</title><style>{STYLE}</style></head><body>"
        '<a class="skip" href="#tables">Skip to the tables</a><main>'
        f"<h1>Encryption audit of {text(name)}</h1>"
        f'<p class="soft">{audit.moment:%Y-%m-%d %H:%M} {text(audit.moment.tzname())}. '
        "Of data files the first bytes were read; whether they authenticate is for <code>tablecrypt verify</code> to say.</p>"
        f'{_verdict(audit)}{_contents(audit)}<div id="tables">{tables}</div></main></body></html>\n'
    )


def _verdict(audit: Audit) -> str:
    style, sentence = {
        Severity.CRITICAL: ("critical", "Plaintext was found."),
        Severity.ERROR: ("error", "No plaintext was found, but something is not as it should be."),
        Severity.WARNING: ("warning", "No plaintext was found. Some things need care."),
    }.get(audit.worst or Severity.INFO, ("good", "No plaintext was found."))
    return f'<div class="verdict {style}" role="status">{sentence}<div class="counts">{_counts(audit)}</div></div>'


def _counts(audit: Audit | TableAudit) -> str:
    numbers = Counter(finding.severity for finding in audit.findings)
    chips = [chip(severity.label, f"{numbers[severity]:,} {severity.label}") for severity in reversed(Severity) if numbers[severity]]
    return " ".join(chips) or chip("good", "no findings")


def _contents(audit: Audit) -> str:
    if len(audit.tables) < 2:
        return ""
    rows = "".join(
        f'<tr><td><a href="#table-{index}">{text(table.table)}</a></td><td>{_counts(table)}</td></tr>'
        for index, table in enumerate(audit.tables)
    )
    return f'<nav class="card" aria-label="Tables"><table><tbody>{rows}</tbody></table></nav>'


def _table(table: TableAudit, audit: Audit, index: int) -> str:
    parts = [f'<section class="card" id="table-{index}"><div class="head"><h2>{text(table.table)}</h2>{_counts(table)}</div>']
    if table.location:
        parts.append(sections.facts(table))
    if table.keks or table.files:
        parts.append(f"<h3>Key tree</h3>{key_tree(table, audit.moment)}")
    if table.partitions:
        parts.append(f"<h3>Coverage</h3>{sections.coverage(table.partitions)}")
    parts.append(f"<h3>Findings</h3>{sections.findings(table.findings)}")
    if table.files:
        parts.append(sections.files(table.files, audit.moment))
    return "".join([*parts, "</section>"])
