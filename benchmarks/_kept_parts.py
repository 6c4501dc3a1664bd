"""Parts of docs/performance.md that are measured apart from the rest, and stand between two marks:

    <!-- growth: begin --> … <!-- growth: end -->

`make bench` writes them with the page as their measures were kept; who measures one anew writes that part alone.
"""

from __future__ import annotations

import re
from pathlib import Path


def marked(name: str, text: str) -> str:
    """Return a part with its marks around it."""
    return f"<!-- {name}: begin -->\n{text}\n<!-- {name}: end -->"


def replace_part(docs: Path, name: str, part: str) -> None:
    """Write a part, with its marks, in place of the one in a page that is there."""
    page = docs / "performance.md"
    old = re.compile(f"<!-- {name}: begin -->.*?<!-- {name}: end -->", re.DOTALL)
    page.write_text(old.sub(lambda _: part, page.read_text()))
