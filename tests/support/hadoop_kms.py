"""A running bridge for tests, with keys and users of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tablecrypt.hadoop_kms.access import AllowListFile, new_token, token_hash
from tablecrypt.hadoop_kms.master_keys import MasterKeyFile, create_key
from tablecrypt.hadoop_kms.protocol import HadoopKms, RateLimit
from tablecrypt.hadoop_kms.server import HadoopKmsServer, ServerSettings
from tablecrypt.kms.client import KeyManagementClient
from tests.support.server_process import StoppedAtTheEnd

CREATED: Final = 1_767_225_600_000


class Bridge(StoppedAtTheEnd):
    """A bridge on a free port in threads of this process, whose master keys `client` wraps under the KMS key `master_key`.

    While `down` is true it drops every connection without an answer.
    """

    def __init__(
        self,
        folder: Path,
        client: KeyManagementClient,
        master_key: str,
        keys: Mapping[str, int],
        *,
        rate: RateLimit | None = None,
        believe_names: bool = False,
        **settings: Any,
    ) -> None:
        self.key_file = folder / "orc-keys.json"
        self.allow_file = folder / "allow.toml"
        self.allow_file.touch()
        self.tokens: dict[str, str] = {}
        for name, length in keys.items():
            create_key(self.key_file, client, name, master_key, CREATED, length)
        self.keys = MasterKeyFile(self.key_file, client)
        service = HadoopKms(
            self.keys, lambda: AllowListFile(self.allow_file).read(), rate or RateLimit(10_000, 10_000), believe_names=believe_names
        )
        self.server = HadoopKmsServer(service, ServerSettings(**{"port": 0, **settings}))
        self.down = False
        # The hook by which socketserver drops a connection before a byte of it is read.
        self.server._listener.verify_request = lambda *_: not self.down  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self.server.serve)
        self._thread.start()

    def allow(self, user: str, *keys: str, masks: tuple[str, ...] = (), certificates: tuple[str, ...] = ()) -> str:
        """Add a user to the list; return a token of theirs."""
        token = self.tokens[user] = new_token()
        lines = (f'[users."{user}"]', f"keys = {list(keys)}", f"masks = {list(masks)}", f"certificates = {list(certificates)}")
        with self.allow_file.open("a") as file:
            file.write("\n".join([*lines, f"token-sha256 = ['{token_hash(token)}']", ""]))
        return token

    def url(self, token: str | None = None) -> str:
        """Where a client with this token finds the protocol."""
        return self.server.url if token is None else self.server.url.replace("/kms", f"/token/{token}/kms")

    def provider_path(self, token: str | None = None) -> str:
        """What Hadoop calls hadoop.security.key.provider.path."""
        return "kms://" + self.url(token).replace("://", "@")

    def stop(self) -> None:
        """Stop and wait until every request is answered. Calling twice is harmless."""
        self.server.stop()
        self._thread.join()

    @contextmanager
    def restored(self) -> Iterator[Bridge]:
        """What is changed meanwhile, of rights and of being there, is changed back."""
        allowed = self.allow_file.read_text()
        yield self
        self.allow_file.write_text(allowed)
        self.down = False
