"""A REST server may be asked for the snapshots of branches and tags alone. Of an encrypted table all are asked for nevertheless.

To who sees no others, theirs are keys and files of nobody.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import migrate
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.restricting_server import RestrictingServer
from tests.support.tables import MASTER_KEY, SCHEMA, memory_kms, new_table, rows


class ServerOfRefs(RestrictingServer):
    """A server that leaves snapshots out of what it answers to who asks for those of branches and tags."""

    def serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, Mapping[str, str]]:
        """Answer one request."""
        status, content, more = super().serve(method, path, headers, body)
        if parse_qs(urlsplit(path).query).get("snapshots") != ["refs"]:
            return status, content, more

        answer = json.loads(content)
        heads = {ref["snapshot-id"] for ref in answer["metadata"]["refs"].values()}
        answer["metadata"]["snapshots"] = [each for each in answer["metadata"]["snapshots"] if each["snapshot-id"] in heads]
        return status, json.dumps(answer).encode(), more


def test_all_snapshots_of_an_encrypted_table_are_loaded_whatever_mode_is_set(unwatched_warehouse: Path, tmp_path: Path) -> None:
    """remove_orphan_files and erase deleted the files of the snapshots that they did not see; an expiry took the keys."""
    kms = memory_kms("missing snapshots")
    place = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{unwatched_warehouse}"}
    catalog = EncryptedSqlCatalog("server", **place, **kms)
    catalog.create_namespace("db")
    new_table(catalog, "db.rows", appends=[rows(0), rows(20)])
    plain = catalog.create_table("db.plain", SCHEMA)
    for first in (0, 20):
        plain.append(rows(first))

    with ServerOfRefs(catalog) as server:
        client = server.client(**kms, **{"snapshot-loading-mode": "refs", "encryption.pins": str(tmp_path / "pins.json")})
        seen = client.load_table("db.rows")
        assert len(seen.snapshots()) == 2
        # With the default, pins compare all that a server says of a table.
        seen.append(rows(40))
        assert [len(each.load_table("db.rows").snapshots()) for each in (client, server.client(**kms))] == [3, 3]
        seen = client.load_table("db.plain")
        assert len(seen.snapshots()) == 1
        with pytest.raises(ConfigurationError, match=r"db\.plain: snapshot-loading-mode=refs leaves snapshots out"):
            migrate(seen, MASTER_KEY, keep_plaintext=True)

        assert len(server.client(**kms, **{"snapshot-loading-mode": "all"}).load_table("db.rows").snapshots()) == 3
    assert catalog.load_table("db.plain").snapshots() == plain.snapshots()
