"""The tables of docs/how-to/programs.md, made from tests/programs/programs.py, which the tests of the programs run.

Run `python -m tests.support.programs_page` after a change of that module; a test fails until it was run.
"""

from __future__ import annotations

from textwrap import wrap
from typing import Any, Final

from tests.programs.programs import PROGRAMS, Call, Program
from tests.support.pages import MadePart

PART: Final = MadePart("how-to/programs.md", "programs")
_WORDS: Final = {"works": "works", "refused": "refused; write instead", "cannot": "cannot"}
_WHOLE: Final[dict[str, Any]] = {"break_long_words": False, "break_on_hyphens": False}


def rendered() -> str:
    """A table of the programs, and a section for each, in Markdown."""
    return "\n".join([_summary(), *(_section(program) for program in PROGRAMS)])


def _summary() -> str:
    rows = [f"| [{each.name}](#{each.slug}) | {each.package} {each.release} | {_tested(each)} | {_outcomes(each)} |" for each in PROGRAMS]
    return "\n".join(["| program | tested with | in | calls |", "|---|---|---|---|", *rows, ""])


def _tested(program: Program) -> str:
    return "the nightly run" if program.installs else "CI"


def _outcomes(program: Program) -> str:
    counts = {word: sum(call.outcome == word for call in program.calls) for word in _WORDS}
    return ", ".join(f"{count} {'work' if word == 'works' and count > 1 else word}" for word, count in counts.items() if count)


def _section(program: Program) -> str:
    about = [line for paragraph in program.about.split("\n\n") if paragraph for line in (*wrap(paragraph, 140, **_WHOLE), "")]
    return "\n".join([f"## {program.name}", "", *about, "| call | what happens |", "|---|---|", *map(_row, program.calls), ""])


def _row(call: Call) -> str:
    shown = call.code if call.is_text else f"`{call.code}`"
    outcome = _WORDS[call.outcome]
    if not call.remark:
        return f"| {shown} | {outcome} |"
    return f"| {shown} | {outcome}{'.' if call.outcome == 'works' else ':'} {call.remark} |"


if __name__ == "__main__":
    PART.write(rendered())
