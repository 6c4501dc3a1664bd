"""Runs the code of a notebook, cell by cell in one process, as Jupyter does, and keeps what each cell printed.

`python -m tests.support.notebook` runs examples/first_table.ipynb again and stores its output in it. Needs neither Jupyter nor a kernel.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any, Final

NOTEBOOK: Final = Path(__file__).parents[2] / "examples" / "first_table.ipynb"
_CHANGING: Final = re.compile(r"[A-Za-z0-9+/]{22}==|\b\d{15,}\b")


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells that run."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(notebook: dict[str, Any], folder: Path) -> list[str]:
    """Run every cell in the folder and return what each of them printed. A failing cell raises its error."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        return [_printed("".join(cell["source"]), names) for cell in code_cells(notebook)]


def _printed(source: str, names: dict[str, Any]) -> str:
    """What a cell prints, and the value of its last expression, as Jupyter shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
            if value is not None:
                print(value)  # noqa: T201 - this is what a notebook does with a value
    return out.getvalue()


def without_ids(text: str) -> str:
    """A text in which ids that differ between runs are the same."""
    return _CHANGING.sub("…", text)


def main() -> None:
    """Store the output of every cell in the notebook."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        printed = run(notebook, Path(folder))
    for number, (cell, text) in enumerate(zip(code_cells(notebook), printed, strict=True), start=1):
        cell["execution_count"] = number
        lines = text.splitlines(keepends=True)
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + os.linesep, encoding="utf-8")


if __name__ == "__main__":
    main()
