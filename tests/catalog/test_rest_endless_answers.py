"""A REST server whose answer a few bytes blow up."""

from __future__ import annotations

import gzip
import json

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.schema import Schema

from tablecrypt.errors import FormatError
from tablecrypt_catalog import EncryptedRestCatalog
from tests.support.tables import new_table
from tests.support.unending_server import serving, whole

CONFIG = json.dumps({"defaults": {}, "overrides": {}}).encode()


def test_a_catalog_reads_no_bomb_and_does_not_know_what_became_of_a_commit_that_one_answered(catalog: Catalog) -> None:
    bomb = gzip.compress(bytes(64 * 2**20))
    table = new_table(catalog, "db.t", Schema())

    with serving(lambda path: whole(CONFIG) if b"/config" in path else whole(bomb, "gzip")) as uri:
        client = EncryptedRestCatalog("prod", uri=uri, token="t", **{"encryption.kms-type": "memory", "kms.memory.name": "endless"})
        with pytest.raises(FormatError, match=r"comes to more than 64 times the [0-9,]+ bytes of it: nothing of it was used"):
            client.load_table("db.t")
        with pytest.raises(CommitStateUnknownException, match="the commit may have landed"):
            client.request_commit(table, "{}")
