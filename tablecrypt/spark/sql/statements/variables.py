"""Spark's variables: `${env:HOME}` or `${spark.app.name}` in a statement, which Spark's parser replaces before it parses.

A user may write them into a statement. Into SQL that comes from elsewhere, as a view's does, or that is made of the names and values of a
table's metadata, its author could put them, to read the environment of the user who runs it, where credentials are.

A word before a colon says where the value comes from, as Spark's documentation of `spark.sql.variable.substitute` lists. A name without one
is that of a setting, and one that is not set becomes nothing. After any other word Spark replaces nothing.
"""

from __future__ import annotations

import re
from typing import Final

MEANING: Final = "which Spark would replace from the environment or settings of whoever runs it"
"""What a variable does, for messages."""
_VARIABLE: Final = re.compile(r"\$\{(?:(\w+?):)?\S+?\}", re.ASCII)
_SOURCES: Final = (None, "env", "system", "spark", "sparkconf", "hiveconf", "hivevar")


def find_variable(sql: str) -> str | None:
    """Return the kind of the first variable in SQL, as `${env:…}`; None if Spark would replace nothing, whatever is set."""
    for found in _VARIABLE.finditer(sql):
        source = found.group(1)
        if source in _SOURCES:
            return "${…}" if source is None else f"${{{source}:…}}"
    return None
