"""Azurite, Microsoft's emulator of Azure Blob Storage, from npm. Its one account has a key that each run makes."""

from __future__ import annotations

import base64
import os
import secrets
from functools import partial
from pathlib import Path
from typing import Final

import fsspec

from tests.services.programs import npm_package, problem_without
from tests.services.stores import ObjectStore
from tests.support.server_process import RunningServer, ServerProcess, free_port, listens

VERSION: Final = "3.37.0"
_ACCOUNT: Final = "devstoreaccount1"
"""Arrow's client knows by this name that there is no hierarchical namespace."""


def azurite_problem() -> str | None:
    """None where Azurite can run, else a sentence that says what is missing."""
    return problem_without("Azurite", "node", "npm")


class Azurite(RunningServer):
    """One running server, whose data is gone when it ends."""

    def __init__(self, folder: Path) -> None:
        port, key = free_port(), base64.b64encode(secrets.token_bytes(64)).decode()
        program = npm_package("azurite", VERSION) / "azurite" / "dist" / "src" / "blob" / "main.js"
        options = ["--blobPort", str(port), "--inMemoryPersistence", "--disableTelemetry", "--silent"]
        environment = os.environ | {"AZURITE_ACCOUNTS": f"{_ACCOUNT}:{key}"}
        self._server = ServerProcess(
            "Azurite", ["node", program, *options, "--skipApiVersionCheck"], folder / "azurite.log", partial(listens, port), environment
        )
        parts = {
            "DefaultEndpointsProtocol": "http",
            "AccountName": _ACCOUNT,
            "AccountKey": key,
            "BlobEndpoint": f"http://127.0.0.1:{port}/{_ACCOUNT}",
        }
        connection = ";".join(f"{name}={value}" for name, value in parts.items())
        self._fsspec = {"adls.connection-string": connection, "adls.account-name": _ACCOUNT}
        self._arrow = {
            "adls.account-name": _ACCOUNT,
            "adls.account-key": key,
            "adls.blob-storage-authority": f"127.0.0.1:{port}",
            "adls.blob-storage-scheme": "http",
            "adls.dfs-storage-authority": f"127.0.0.1:{port}",
            "adls.dfs-storage-scheme": "http",
        }
        self._files = fsspec.filesystem("abfs", connection_string=connection, use_listings_cache=False, skip_instance_cache=True)

    def store(self, file_io: str) -> ObjectStore:
        """A new container, for one of FILE_IOS."""
        name = f"c{secrets.token_hex(6)}"
        self._files.mkdir(name)
        return ObjectStore(f"abfs://{name}", file_io, self._arrow if file_io == "arrow" else self._fsspec, self._files)
