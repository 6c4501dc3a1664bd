"""What Iceberg's test classes find, as classes.toml says: for each class how many of its tests pass, and why the others cannot."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.pages import MadePart

PART: Final = MadePart("spark-sql.md", "classes")
_FILE: Final = Path(__file__).with_name("classes.toml")
_LEFT_OUT: Final = "leftover"


@dataclass(frozen=True)
class IcebergClass:
    """One class of Iceberg's.

    Attributes:
        name: behind `org.apache.iceberg.spark.`.
        passed: how many of its tests pass.
        differs: those that do not, by the sentence that says why.
        left_out: of these, those that are not run, since they would break the tests after them.
    """

    name: str
    passed: int
    differs: dict[str, tuple[str, ...]]
    left_out: frozenset[str]

    @property
    def failing(self) -> set[str]:
        """The names of the tests that do not pass, run or not."""
        return {test for tests in self.differs.values() for test in tests}


def iceberg_classes() -> list[IcebergClass]:
    """Return all classes, in the order of the file."""
    content = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    reasons: dict[str, str] = content["reasons"]
    return [
        IcebergClass(
            name,
            found["passed"],
            {reasons[reason]: tuple(tests) for reason, tests in found.items() if reason != "passed"},
            frozenset(found.get(_LEFT_OUT, ())),
        )
        for name, found in content["classes"].items()
    ]


def rendered() -> str:
    """Return the table of docs/spark-sql.md."""
    classes = iceberg_classes()
    rows = [
        f"| {each.name.rpartition('.')[2]} | {each.passed} of {each.passed + len(each.failing)} | "
        + " ".join(f"{reason} ({len(tests)})" for reason, tests in each.differs.items())
        + " |"
        for each in classes
    ]
    passed, failing = sum(each.passed for each in classes), sum(len(each.failing) for each in classes)
    last = f"| all | {passed} of {passed + failing} | |"
    return "\n".join(["", "| class | passed | what differs |", "|---|---|---|", *rows, last, "", ""])


if __name__ == "__main__":
    PART.write(rendered())
