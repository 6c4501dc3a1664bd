"""What can be wrong with a file, part by part, and what a look at one file came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One part of a file that is not what its writer left.

    Attributes:
        part: "length", "header", "block 3", "footer", or a Parquet module by the name that the specification gives it.
        message: what failed.
    """

    part: str
    message: str


@dataclass(frozen=True)
class FileLook:
    """What a look at one file came to. Holds no key, and can be pickled.

    Attributes:
        length: bytes that were authenticated or, in a short look, bytes of the file.
        parts: how many blocks or modules authenticated.
        problems: empty for a good file.
    """

    length: int
    parts: int
    problems: tuple[Problem, ...] = ()
