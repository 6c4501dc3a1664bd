"""Pages of the documentation: their code blocks, a run of these from top to bottom as a reader copies them, and parts that tools write."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class MadePart:
    """The part of a page that a tool writes: what stands between `<!-- name: begin -->` and `<!-- name: end -->`.

    Attributes:
        page: its path below docs/.
        name: that of the part.
    """

    page: str
    name: str

    @property
    def path(self) -> Path:
        return DOCS / self.page

    def read(self) -> str:
        """What the page has there, from the line behind the first mark to the second."""
        return self._split()[1]

    def write(self, made: str) -> None:
        """Put this there. It ends with a line."""
        before, _, after = self._split()
        self.path.write_text(before + made + after, encoding="utf-8")

    def _split(self) -> tuple[str, str, str]:
        begin, end = f"<!-- {self.name}: begin -->\n", f"<!-- {self.name}: end -->"
        before, found, rest = self.path.read_text(encoding="utf-8").partition(begin)
        made, closed, after = rest.partition(end)
        assert found and closed, f"{self.path} has no part {self.name}"
        return before + begin, made, end + after


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of every code block, in order. `sh`, `python` and `yaml` are run; `text` after `python` is what it prints."""
    return BLOCK.findall(page)


def run_page(
    page: str, folder: Path, environment: Mapping[str, str], executables: Path | None = None, interpreter: str = sys.executable
) -> None:
    """Run the commands and programs of a page in a folder, and compare what the programs print with what the page shows.

    `yaml` becomes .pyiceberg.yaml. `executables` is the bin folder of an environment that has the package; without one, this checkout is
    used, and `interpreter` runs the programs. What installs or builds the package (pip, make) is left out. Raises AssertionError where
    something fails or prints something else.
    """
    python, command = [interpreter], [sys.executable, "-m", "tablecrypt.cli"]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "catalog")]), **environment}
    if executables is not None:
        python, command = [str(executables / "python")], [str(executables / "tablecrypt")]
        del variables["PYTHONPATH"]
    printed = ""
    for language, text in blocks(page):
        if language == "yaml":
            (folder / ".pyiceberg.yaml").write_text(text, encoding="utf-8")
        elif language == "python":
            printed = _run([*python, "-c", text], folder, variables)
            continue
        elif language == "sh":
            for arguments in _commands(text):
                _run([*command, *arguments], folder, variables)
        elif language == "text" and printed:
            assert printed == text
        printed = ""


def _commands(text: str) -> Iterator[list[str]]:
    """The arguments of each `tablecrypt …`."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] in {"tablecrypt", "pip", "make"}, line
        if words[0] == "tablecrypt":
            yield words[1:]


def _run(command: list[str], folder: Path, variables: Mapping[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, encoding="utf-8", check=False, timeout=120)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
