"""What a check-up tries of the key service: a probe under each master key that is named, and the KEKs of a table.

configuration    encryption.default-key-id, encryption.allowed-key-ids
table            encryption.key-id ─▶ the KEK of the current snapshot
                 encryption.column-keys, column KEKs ─▶ the newest column KEK under each master key
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, cast

from pyiceberg.table import Table

from tablecrypt import properties as names
from tablecrypt.crypto.secret import Secret
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.factory import load_kms
from tablecrypt.kms.resilient import check_blob, unwrap_kek, wrap_unchecked
from tablecrypt.maintenance._doctor.checks import Check, CheckState, tried
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.table import EncryptedTable

_KEYS: Final = "keys"
_SERVICE: Final = "the key service"
_RIGHTS: Final = "docs/how-to/permissions.md has its name in each key service"
_PROBE_LENGTH: Final = 16


def key_checks(properties: Mapping[str, str], table: Table | None, others: tuple[str, ...], read_only: bool) -> Iterator[Check]:
    """Try the key service with every master key that is named, each once.

    Args:
        properties: the catalog's.
        table: whose keys are tried; None without one.
        others: further master keys.
        read_only: whether to wrap nothing, so that only the table's own KEKs can show anything.
    """
    clients: list[KeyManagementClient] = []

    def make() -> str:
        clients.append(load_kms(properties))  # it has remembered nothing yet
        return str(properties.get(names.KMS_TYPE.name) or names.kms_impl(properties))

    advice = f"set {names.KMS_TYPE.name} and what docs/reference/properties.md lists for that service"
    service = tried(_KEYS, _SERVICE, make, advice)
    found = [check for client in clients for check in _client_checks(client, table, others, read_only)]
    for client in clients:
        client.close()
    if clients and all(check.state == CheckState.UNTRIED for check in found):
        # A client that was made has asked the service nothing: to say that it works would promise too much.
        service = replace(service, state=CheckState.UNTRIED, found=f"{service.found} is configured; nothing was contacted")
    yield service
    yield from found


def _client_checks(client: KeyManagementClient, table: Table | None, others: tuple[str, ...], read_only: bool) -> Iterator[Check]:
    columns: dict[str, str] = {}

    def declared() -> str:
        columns.update(_columns_by_key(table))
        return ", ".join(columns)

    policy = tried(_KEYS, "find the master keys of columns", declared, "restore the table's properties encryption.column.*")
    if policy.state == CheckState.FAILS:
        yield policy
    own = () if table is None else (table.metadata.properties.get(names.KEY_ID.name),)
    key_ids = [key_id for key_id in dict.fromkeys((*own, *columns, *others)) if key_id]

    for key_id in key_ids:
        if read_only:
            yield Check(_KEYS, f"wrap and unwrap with {key_id}", CheckState.UNTRIED, "not tried: the check is read-only")
        else:
            yield from _probe(client, key_id, columns.get(key_id, ""), "name a table, whose KEK shows it" if table is None else "")

    if not key_ids:
        advice = "name a table, or a key with --key-id"
        yield Check(_KEYS, "wrap and unwrap", CheckState.UNTRIED, "not tried: no master key is known", advice)
    if isinstance(table, EncryptedTable):
        yield _kek_check(client, table)
        yield from _column_kek_checks(client, table.metadata, columns)


def _columns_by_key(table: Table | None) -> dict[str, str]:
    """Return the protected columns below each master key, for people to read. Of columns that are gone, only the key is left."""
    if table is None or not isinstance(table.metadata, EncryptedTableMetadata):
        return {}

    metadata = table.metadata
    policy, schema = ColumnPolicy.from_properties(metadata.properties), metadata.schema()
    named = [(each.column_key_id, each.field_id) for each in policy.columns.values()]
    named += [(former.key_id, field_id) for field_id, former in policy.former.items()]
    found: dict[str, list[str]] = {kek.encrypted_by_id: [] for kek in metadata.key_ring.column_keks if kek.encrypted_by_id}
    for key_id, field_id in named:
        found.setdefault(key_id, []).append(schema.find_column_name(field_id) or f"{field_id}, which was dropped")
    return {key_id: ", ".join(dict.fromkeys(columns)) for key_id, columns in found.items()}


def _probe(client: KeyManagementClient, key_id: str, columns: str, advice: str) -> Iterator[Check]:
    probe = Secret(secrets.token_bytes(_PROBE_LENGTH))
    wrapped: list[bytes] = []
    of_columns = f", the key of column {columns}" if columns else ""

    def wrap() -> str:
        # Unchecked: whether the client may unwrap is a check by itself, so a client that may only wrap shows as such.
        wrapped.append(wrap_unchecked(client, probe, key_id))
        return f"a probe of {_PROBE_LENGTH} bytes was wrapped{of_columns}"

    def unwrap() -> str:
        check_blob(client, wrapped[0], key_id, probe)
        return "the probe came back unchanged"

    yield tried(_KEYS, f"wrap with {key_id}", wrap, _advice("wrap", columns))
    name = f"unwrap with {key_id}"
    if wrapped:
        yield tried(_KEYS, name, unwrap, _advice("unwrap", columns))
    else:
        yield Check(_KEYS, name, CheckState.UNTRIED, "not tried: no key could be wrapped", advice)


def _kek_check(client: KeyManagementClient, table: EncryptedTable) -> Check:
    metadata, snapshot = table.metadata, cast("EncryptedSnapshot | None", table.current_snapshot())
    key_id = metadata.properties[names.KEY_ID.name]
    name = f"open the table's KEK with {key_id}"
    if snapshot is None:
        return Check(_KEYS, name, CheckState.UNTRIED, "not tried: the table has no snapshot yet")

    manager = EncryptionManager(client, key_id)

    return _opens(name, lambda: manager.decrypt_manifest_list_key_metadata(metadata.key_ring.chain(snapshot.key_id_of_list())), "")


def _column_kek_checks(client: KeyManagementClient, metadata: EncryptedTableMetadata, columns: Mapping[str, str]) -> Iterator[Check]:
    for key_id, kek in {kek.encrypted_by_id: kek for kek in metadata.key_ring.column_keks}.items():
        if key_id is not None:
            named = columns.get(key_id) or "that is gone"
            open_kek = partial(_unwrap, client, kek, key_id)
            yield _opens(f"open the KEK of column {named} with {key_id}", open_kek, named)


def _unwrap(client: KeyManagementClient, kek: EncryptedKey, key_id: str) -> Secret:
    return unwrap_kek(client, kek.wrapped_bytes(), key_id, f"column KEK {kek.key_id}")


def _opens(name: str, open_key: Callable[[], object], columns: str) -> Check:
    def attempt() -> str:
        open_key()
        return f"it opens, and values of column {columns} are readable" if columns else "the key of the current snapshot opens"

    return tried(_KEYS, name, attempt, _advice("unwrap", columns))


def _advice(right: str, columns: str) -> str:
    users = {"wrap": "writers and most of the commands", "unwrap": "readers and writers"}[right]
    if columns:
        users = {"wrap": f"writers of column {columns}", "unwrap": f"readers of column {columns}, who see masks without it,"}[right]
    return f"check the key id, the address and the credentials, and that this client may {right} with the key: {users} need it; {_RIGHTS}"
