"""A folder with tables and the database of their catalog, as it was saved, and put back after each attack."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

from tests.support.tables import path_of


@dataclass(frozen=True)
class State:
    """Every file but the database, and every row of that."""

    files: Mapping[Path, bytes]
    rows: tuple[str, ...]


@dataclass
class SavedFolder:
    """The folder. The database is `catalog.db` in it. Clients have it open meanwhile: its rows are replaced, and not its file."""

    folder: Path
    pointer: str
    """Where the current metadata file is, as long as nobody attacks."""
    at_rest: State = State({}, ())
    """What `restore` goes back to."""
    undo: list[Callable[[], object]] = field(default_factory=list)
    """What else `restore` has to do after an attack."""

    def state(self) -> State:
        """What is there at this moment."""
        with closing(sqlite3.connect(self.folder / "catalog.db")) as database:
            rows = tuple(line for line in database.iterdump() if line.startswith("INSERT"))
        return State({path: path.read_bytes() for path in self._paths()}, rows)

    def put_back(self, state: State) -> None:
        """Make files and database what they were."""
        for path in self._paths():
            if path not in state.files:
                path.unlink()
        for path, content in state.files.items():
            if not path.exists() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        with closing(sqlite3.connect(self.folder / "catalog.db")) as database, database:
            if tuple(line for line in database.iterdump() if line.startswith("INSERT")) != state.rows:
                names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
                for statement in [*(f"DELETE FROM {name}" for name in names), *state.rows]:
                    database.execute(statement)

    def restore(self) -> None:
        """Put everything back."""
        while self.undo:
            self.undo.pop()()
        self.put_back(self.at_rest)

    @contextmanager
    def attacked(self, act: Callable[[Self], object]) -> Iterator[None]:
        """Do what an attack does, and put everything back afterwards."""
        try:
            act(self)
            yield
        finally:
            self.restore()

    def saved(self, location: str) -> bytes:
        """A file as it was saved."""
        return self.at_rest.files[path_of(location)]

    def keep(self, path: Path) -> None:
        """Have a file go back to what it is now: one that a client writes itself, such as its pins."""
        self.at_rest = State({**self.at_rest.files, path: path.read_bytes()}, self.at_rest.rows)

    @property
    def metadata(self) -> dict[str, Any]:
        """The JSON of the current metadata file, as it was saved."""
        return cast("dict[str, Any]", json.loads(self.saved(self.pointer)))

    def write(self, location: str, content: bytes) -> None:
        """Write a file, or write over it."""
        path_of(location).write_bytes(content)

    def write_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Put edited metadata in the place of the current metadata file."""
        self.write(self.pointer, json.dumps(metadata).encode())

    def execute(self, statement: str, *parameters: object) -> None:
        """Change the catalog's database, past the catalog."""
        with closing(sqlite3.connect(self.folder / "catalog.db")) as database, database:
            database.execute(statement, parameters)

    def point(self, location: str, name: str) -> None:
        """Have the catalog say that a table's current metadata is there."""
        self.execute("UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?", location, name.partition(".")[2])

    def pointed(self, name: str) -> str:
        """What the catalog says of it."""
        with closing(sqlite3.connect(self.folder / "catalog.db")) as database:
            query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
            (found,) = database.execute(query, (name.partition(".")[2],)).fetchone()
            return str(found)

    def _paths(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file() and not path.name.startswith("catalog.db")]
