"""The code blocks of a page of the documentation, and a run of them from top to bottom, as a reader copies them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of every code block, in order. `sh`, `python` and `yaml` are run; `text` after `python` is what it prints."""
    return BLOCK.findall(page)


def run_page(page: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Run the commands and programs of a page in a folder, and compare what the programs print with what the page shows.

    `yaml` becomes .pyiceberg.yaml. Raises AssertionError where something fails or prints something else.
    """
    printed = ""
    for language, text in blocks(page):
        if language == "yaml":
            (folder / ".pyiceberg.yaml").write_text(text, encoding="utf-8")
        elif language == "python":
            printed = _run([sys.executable, "-c", text], folder, environment)
        elif language == "sh":
            for command in _commands(text):
                _run(command, folder, environment)
        elif language == "text" and printed:
            assert printed == text
        if language != "python":
            printed = ""


def _commands(text: str) -> Iterator[list[str]]:
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "tablecrypt", f"only the command of this package is run, not {line}"
        yield [sys.executable, "-m", "tablecrypt.cli", *words[1:]]


def _run(command: list[str], folder: Path, environment: Mapping[str, str]) -> str:
    search_path = os.pathsep.join([str(ROOT), str(ROOT / "catalog")])
    variables = {**os.environ, "PYTHONPATH": search_path, **environment}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, encoding="utf-8", check=False, timeout=120)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
