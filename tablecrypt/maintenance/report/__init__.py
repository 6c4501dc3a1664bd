"""An audit as one HTML page that needs nothing but itself.

page.py      puts the page together, and pins its style and script by their hashes
overview.py  the verdict, the figures, and the tables by risk
exposure.py  who could read what without the key service
keys.py      the key tree, and the age of every key against its period
details.py   each table: facts, findings, partitions, files
*.html       the markup, style.css how it looks, page.js sorting and filtering
"""

from __future__ import annotations

from tablecrypt.maintenance.report.page import html_page

__all__ = ["html_page"]
