"""Parts of docs/performance.md that are measured apart from the rest, and stand between two marks:

    <!-- growth: begin --> … <!-- growth: end -->

`make bench` writes them with the page as their measures were kept; who measures one anew writes that part alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any


def keep_measure(path: Path, kind: str, name: str, measured: Mapping[str, Any], order: Collection[str]) -> None:
    """Keep what was measured under one name beside what is kept under the others.

    Args:
        path: of the JSON, which may be missing.
        kind: what the names are of.
        name: takes the place of what was kept under it.
        measured: as JSON holds it.
        order: of the names; others are forgotten.
    """
    known: dict[str, Any] = json.loads(path.read_text())[kind] if path.exists() else {}
    known[name] = measured
    path.write_text(json.dumps({kind: {each: known[each] for each in order if each in known}}, indent=1) + "\n")


def marked(name: str, text: str) -> str:
    """Return a part with its marks around it."""
    return f"<!-- {name}: begin -->\n{text}\n<!-- {name}: end -->"


def replace_part(docs: Path, name: str, part: str) -> None:
    """Write a part, with its marks, in place of the one in a page that is there."""
    page = docs / "performance.md"
    old = re.compile(f"<!-- {name}: begin -->.*?<!-- {name}: end -->", re.DOTALL)
    page.write_text(old.sub(lambda _: part, page.read_text()))
