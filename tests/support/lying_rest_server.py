"""A REST catalog server, in this process and without Java, that answers with whatever lies in a table's metadata file.

Who edits the file before the client asks has the server answer with the edited metadata. It takes no commits.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.support.restricting_server import RestrictingServer


class LyingRestServer(RestrictingServer):
    """One running server.

    Attributes:
        config: what it sends beside a table's metadata.
        overrides: what it sends when it is asked for its configuration.
    """

    def __init__(self, catalog: Catalog, pointed: Callable[[], Path]) -> None:
        self.config: dict[str, str] = {}
        self.overrides: dict[str, str] = {}
        self._pointed = pointed
        super().__init__(catalog)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Answer one request."""
        if path.endswith("/v1/config"):
            return 200, {"defaults": {}, "overrides": self.overrides}
        if method == "GET":
            location = self._pointed()
            metadata = json.loads(location.read_bytes())
            return 200, {"metadata-location": location.as_uri(), "metadata": metadata, "config": self.config, **self.vended()}
        return super().answer(method, path, body)

    def _loaded(self, table: Table) -> dict[str, Any]:
        raise NotImplementedError(f"{table.name()} is not committed to")
