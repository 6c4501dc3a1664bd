"""What Iceberg's test classes find, as classes.toml says: for each class how many of its tests pass, and why the others cannot."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FILE: Final = Path(__file__).with_name("classes.toml")


@dataclass(frozen=True)
class TestedClass:
    """One class of Iceberg's.

    Attributes:
        name: behind `org.apache.iceberg.spark.`.
        passed: how many of its tests pass.
        differs: those that do not, by the sentence that says why.
    """

    name: str
    passed: int
    differs: dict[str, tuple[str, ...]]

    @property
    def failing(self) -> set[str]:
        """The names of the tests that do not pass."""
        return {test for tests in self.differs.values() for test in tests}


def tested_classes() -> list[TestedClass]:
    """Return all classes, in the order of the file."""
    content = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    reasons: dict[str, str] = content["reasons"]
    return [
        TestedClass(name, found["passed"], {reasons[reason]: tuple(tests) for reason, tests in found.items() if reason != "passed"})
        for name, found in content["classes"].items()
    ]


def rows_of_page() -> list[str]:
    """Return the rows of the table in docs/spark-sql.md."""
    classes = tested_classes()
    rows = [
        f"| {each.name.rpartition('.')[2]} | {each.passed} of {each.passed + len(each.failing)} | "
        + " ".join(f"{reason} ({len(tests)})" for reason, tests in each.differs.items())
        + " |"
        for each in classes
    ]
    passed, failing = sum(each.passed for each in classes), sum(len(each.failing) for each in classes)
    return [*rows, f"| all | {passed} of {passed + failing} | |"]


if __name__ == "__main__":
    sys.stdout.write("\n".join(rows_of_page()) + "\n")
