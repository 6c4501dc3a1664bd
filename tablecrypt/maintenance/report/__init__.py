"""Reports for people to keep: an audit as one HTML page, and as a bundle to hand over.

page.py      puts the audit's page together, and each table on it: facts, findings, partitions, files
overview.py  the verdict, the figures, and the tables by risk
exposure.py  who could read what without the key service
key_tables.py  the key tree, and the age of every key against its period
bundle.py    the zip to hand over: pages, JSON, README and hashes
clauses.py   what an auditor asks, and what an audit found of it
markup.py    pages of the templates, which pin their style and script by hashes
new_files.py where they are written
*.html       the markup, style.css how it looks, page.js sorting and filtering
"""

from __future__ import annotations

from tablecrypt.maintenance.report.bundle import check_evidence_path
from tablecrypt.maintenance.report.page import html_page

__all__ = ["check_evidence_path", "html_page"]
