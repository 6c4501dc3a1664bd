"""What every adapter in Python says and hears: JSON, a line each, over its standard streams.

adapter   {"name": "pyarrow", "version": "26.0.1", "levels": ["parquet"], "writes": ["parquet"]}      once, when it is ready: what it reads
                                                                                                    and writes
runner    a case as the manifest has it, its paths absolute, and "out": where rows or plaintext go, or what is written
adapter   {"result": "rows"}                                              Arrow IPC is at `out`
          {"result": "plaintext"}                                         bytes are at `out`
          {"result": "files", "files": 2, "records": 24}                  of a table, by a reader that opens its lists and manifests alone
          {"result": "refused", "class": "tampered", "message": "…"}      one of the classes of README.md, or "other"
          {"result": "written"}                                           the file is at `out`
          {"result": "written", "metadata": "/…/v1.metadata.json"}        the table is in the folder `out`
          {"result": "unsupported", "message": "…"}                       it does not try cases of this kind
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Case = dict[str, Any]
Answer = dict[str, Any]


Errors = tuple[type[Exception], ...]


def serve(
    name: str,
    version: str,
    levels: Sequence[str],
    read: Callable[[Case], str],
    errors: Errors,
    refused: Callable[[Exception], str],
    write: Callable[[Case], str | None] | None = None,
    writes: Sequence[str] = (),
) -> None:
    """Answer until the input ends.

    Args:
        levels: those of cases that it reads.
        read: reads a case and writes what it holds to `out`; returns "rows" or "plaintext". Raises Unsupported for cases that it does
            not try.
        errors: what it raises where it refuses. Anything else is a mistake of the adapter, and ends it: it is no refusal.
        refused: the class of what it raised.
        write: writes a case to `out`; returns where the metadata of a table is, else None. Raises Unsupported as `read` does.
        writes: the levels of cases that it writes.
    """
    # Readers print what they like: the answers go where they cannot.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    print(json.dumps({"name": name, "version": version, "levels": list(levels), "writes": list(writes)}), file=answers)
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line), read, write, errors, refused)), file=answers)


class Unsupported(Exception):
    """The reader or writer has no way to try this."""


def check_needs(case: Case, name: str) -> None:
    """Unsupported for a case that concerns readers alone that pin what they saw, or that know columns with keys of their own."""
    for need in ("pins", "column-keys"):
        if need in case.get("needs", ()):
            raise Unsupported(f"{name} has no {need}")


def columns_of(case: Case) -> str:
    """Of a table in SQL: what a case reads."""
    return ", ".join(case.get("columns", "*"))


def class_by_words(error: Exception, words: Mapping[str, Sequence[str]]) -> str:
    """The first class of refusal of which a word is in the message, else "other"."""
    return next((name for name, known in words.items() if any(word in str(error) for word in known)), "other")


def _answer(
    case: Case,
    read: Callable[[Case], str],
    write: Callable[[Case], str | None] | None,
    errors: Errors,
    refused: Callable[[Exception], str],
) -> Answer:
    try:
        if case["kind"] != "write":
            return {"result": read(case)}
        if write is None:
            raise Unsupported("it writes nothing")
        metadata = write(case)
        return {"result": "written"} | ({"metadata": metadata} if metadata else {})
    except Unsupported as reason:
        return {"result": "unsupported", "message": str(reason)}
    except errors as error:
        return {"result": "refused", "class": refused(error), "message": f"{type(error).__name__}: {error}"}
