"""HashiCorp Vault with its transit engine, built from the Go module of its sources, which takes minutes the first time."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Final

import hvac

from tests.services.programs import problem_without
from tests.support.kept_folders import kept_folder
from tests.support.server_process import RunningServer, ServerProcess, free_port, listens

VERSION: Final = "1.21.0"
KEYS: Final = ("orders", "people", "pii", "others")
_SOURCE: Final = Path(__file__).with_name("vault_dev")


def vault_problem() -> str | None:
    """None where Vault can be built, else a sentence that says what is missing."""
    return problem_without("Vault", "go")


class Vault(RunningServer):
    """One running server, with a transit engine at transit/ that has KEYS. `client` may do everything in it."""

    def __init__(self, folder: Path) -> None:
        port, log = free_port(), folder / "vault.log"
        self.url = f"http://127.0.0.1:{port}"
        self._server = ServerProcess("Vault", [_program(), f"127.0.0.1:{port}"], log, partial(listens, port), os.environ)
        try:
            self.token = next(line for line in log.read_text().splitlines() if line.startswith("hvs."))
            self.client = hvac.Client(self.url, self.token)
            self.client.sys.enable_secrets_engine("transit")
            for name in KEYS:
                self.client.secrets.transit.create_key(name)
        except BaseException:
            self.stop()
            raise

    def properties(self, token: str | None = None) -> dict[str, str]:
        """What our client needs: with a token, or the root's."""
        return {"vault.url": self.url, "vault.token": token or self.token}

    def token_for(self, name: str, policy: str) -> str:
        """A new token that may do what a policy in HCL grants, beside what Vault's default policy grants every token."""
        self.client.sys.create_or_update_policy(name, policy)
        token: str = self.client.auth.token.create(policies=[name])["auth"]["client_token"]
        return token


def _program() -> Path:
    def fetching(folder: Path) -> list[str]:
        # Built from a copy, since Go writes the checksums of all modules beside go.mod.
        script = 'cp -r "$1" "$2" && cd "$2" && GOFLAGS=-mod=mod go build -trimpath -o vault .'
        return ["sh", "-c", script, "sh", str(_SOURCE), str(folder)]

    return kept_folder(f"vault-{VERSION}", fetching) / "vault"
