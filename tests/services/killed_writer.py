"""A writer that test_kills.py starts: it changes the table db.t round by round, says when each is done, and kills itself at a step.

python -m tests.services.killed_writer FIRST_ROUND LAST_STEP < catalog-properties.json
"""

from __future__ import annotations

import json
import sys
from typing import Final

from pyiceberg.table import Table

from tablecrypt.maintenance import rotate_kek
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.kill_points import dying_at
from tests.support.tables import rows

ROUNDS: Final = 4
MORTAL_IOS: Final = {"arrow": "tests.support.kill_points.MortalFileIO", "fsspec": "tests.support.kill_points.MortalFsspecFileIO"}


def change(table: Table, number: int) -> None:
    """Make the change of a round: two append, then one deletes, and every fourth rotates the KEK."""
    if number % 4 == 3:
        rotate_kek(table)
    elif number % 4 == 2:
        table.delete(f"id < {_first(number - 1) + 5} and id >= {_first(number - 1)}")
    else:
        table.append(rows(_first(number)))


def ids_after(rounds: int) -> list[int]:
    """The ids in the table after so many rounds."""
    present = set(range(20))
    for number in range(rounds):
        if number % 4 == 2:
            present -= set(range(_first(number - 1), _first(number - 1) + 5))
        elif number % 4 != 3:
            present |= set(range(_first(number), _first(number) + 20))
    return sorted(present)


def _first(number: int) -> int:
    return 100 * (number + 1)


def main(first_round: int, last_step: int) -> None:
    catalog = EncryptedSqlCatalog("prod", **json.load(sys.stdin))
    with dying_at(last_step, for_good=True):
        for number in range(first_round, first_round + ROUNDS):
            change(catalog.load_table("db.t"), number)
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
