"""Whether the key service lets this client wrap and unwrap: a random probe under each master key, wrapped, opened and compared.

The probe is no key of anything, and what it was wrapped to is stored nowhere. A reader may be refused to wrap: that he can read a table
shows the table's own KEK.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tablecrypt.crypto.secret import Secret
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.new_blobs import check_blob, wrap_unchecked
from tablecrypt.maintenance.doctor.checks import Check, CheckState, tried

AREA: Final = "keys"
_PROBE_LENGTH: Final = 16
_RIGHTS: Final = "docs/operations.md, “Permissions”, has its name in each key service"


def key_checks(client: KeyManagementClient, key_ids: Iterable[str], read_only: bool) -> Iterator[Check]:
    """Try each master key.

    Args:
        client: a client that remembers nothing from before.
        key_ids: the master keys.
        read_only: whether to wrap nothing, so that only a table's own KEK can show anything.
    """
    known = False
    for key_id in key_ids:
        known = True
        if read_only:
            yield Check(AREA, f"wrap and unwrap with {key_id}", CheckState.NOTED, "not tried: only looking was asked for")
        else:
            yield from _probe(client, key_id)
    if not known:
        yield Check(AREA, "wrap and unwrap", CheckState.NOTED, "not tried: no master key is known", "name a table, or a key with --key-id")


def _probe(client: KeyManagementClient, key_id: str) -> Iterator[Check]:
    probe = Secret(secrets.token_bytes(_PROBE_LENGTH))
    wrapped: list[bytes] = []

    def wrap() -> str:
        wrapped.append(wrap_unchecked(client, probe, key_id))
        return f"a probe of {_PROBE_LENGTH} bytes was wrapped"

    def unwrap() -> str:
        check_blob(client, wrapped[0], key_id, probe)
        return "the probe came back as it was"

    yield tried(AREA, f"wrap with {key_id}", wrap, _advice("wrap", "writers and most of the commands"))
    name = f"unwrap with {key_id}"
    if wrapped:
        yield tried(AREA, name, unwrap, _advice("unwrap", "readers and writers"))
    else:
        yield Check(AREA, name, CheckState.NOTED, "not tried: nothing could be wrapped before", "name a table, whose KEK shows it")


def opens(open_key: Callable[[], object], key_id: str) -> Check:
    """Try to open the KEK of a table's current snapshot, and the key that it wraps."""

    def attempt() -> str:
        open_key()
        return "the key of the current snapshot opens"

    return tried(AREA, f"open the table's KEK with {key_id}", attempt, _advice("unwrap", "readers and writers"))


def _advice(right: str, users: str) -> str:
    return f"check the key id, the address and the credentials, and that this client may {right} with the key: {users} need it; {_RIGHTS}"
