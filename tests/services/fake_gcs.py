"""fake-gcs-server, an emulator of Google Cloud Storage in Go, which keeps objects in memory."""

from __future__ import annotations

import os
import secrets
from functools import partial
from pathlib import Path
from typing import Final

import fsspec

from tests.services.programs import go_program, problem_without
from tests.services.stores import ObjectStore
from tests.support.server_process import RunningServer, ServerProcess, free_port, listens

VERSION: Final = "v1.56.1"
_NEVER: Final = "4102444800000"
"""Milliseconds since 1970, in 2100."""


def fake_gcs_problem() -> str | None:
    """None where fake-gcs-server can run, else a sentence that says what is missing."""
    return problem_without("fake-gcs-server", "go")


class FakeGcs(RunningServer):
    """One running server, which asks for no credentials."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self._endpoint = f"http://127.0.0.1:{port}"
        program = go_program("github.com/fsouza/fake-gcs-server", VERSION)
        options = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
        names = ["-public-host", f"127.0.0.1:{port}", "-external-url", self._endpoint]
        self._server = ServerProcess(
            "fake-gcs-server", [program, *options, *names, "-log-level", "error"], folder / "server.log", partial(listens, port), os.environ
        )
        # gcsfs would ask over gRPC and TLS, which the emulator has not, what kind of bucket each is.
        os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
        try:
            self._files = fsspec.filesystem(
                "gs", token="anon", endpoint_url=self._endpoint, use_listings_cache=False, skip_instance_cache=True
            )
        except BaseException:
            self.stop()
            raise

    def store(self, file_io: str) -> ObjectStore:
        """A new bucket, for one of FILE_IOS."""
        name = f"b{secrets.token_hex(6)}"
        self._files.mkdir(name)
        token = {"gcs.oauth2.token": "anon"} if file_io == "fsspec" else {"gcs.oauth2.token": "any", "gcs.oauth2.token-expires-at": _NEVER}
        return ObjectStore(f"gs://{name}", file_io, {"gcs.service.host": self._endpoint, **token}, self._files)
