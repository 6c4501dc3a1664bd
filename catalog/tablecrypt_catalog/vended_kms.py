"""Credentials for the key service that a REST catalog server vends with a table, as the REST specification's draft has them.

    "key-management-credentials": [{"kms-key-ids": ["alias/orders"], "config": {"client.access-key-id": …, …}}]

A client takes them with `encryption.kms.vended=true` alone, and only where its own `encryption.allowed-key-ids` says which master keys it
means: whoever runs the catalog could otherwise have a key of their own used. What a server sends are credentials and nothing else. Which
service it is, where that lies and who is impersonated there stay this client's own to say; the client's own credentials and roles give way.

Of several sets the one serves that names the table's master key, for every key of the table. Without one the client's own credentials do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyiceberg.table.metadata import TableMetadata

from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError
from tablecrypt.kms.resilient import AllowedKeys

_CREDENTIALS: Final[Mapping[str, frozenset[str]]] = {
    "aws": frozenset({names.CLIENT_ACCESS_KEY_ID.name, names.CLIENT_SECRET_ACCESS_KEY.name, names.CLIENT_SESSION_TOKEN.name}),
    "vault": frozenset({names.VAULT_TOKEN.name}),
}
"""By service, what a server may send. A set is whole with those of them that are not for temporary credentials alone."""
_TEMPORARY: Final = frozenset({names.CLIENT_SESSION_TOKEN.name})
_OWN_IDENTITY: Final = frozenset(
    each.name
    for each in (
        names.CLIENT_PROFILE_NAME,
        names.CLIENT_ACCESS_KEY_ID,
        names.CLIENT_SECRET_ACCESS_KEY,
        names.CLIENT_SESSION_TOKEN,
        names.CLIENT_ASSUME_ROLE_ARN,
        names.CLIENT_ASSUME_ROLE_EXTERNAL_ID,
        names.CLIENT_ASSUME_ROLE_REGION,
        names.CLIENT_ASSUME_ROLE_SESSION_NAME,
        names.CLIENT_ASSUME_ROLE_TAGS,
        names.CLIENT_ASSUME_ROLE_TIMEOUT_SEC,
        names.CLIENT_ROLE_ARN,
        names.CLIENT_ROLE_SESSION_NAME,
        names.VAULT_TOKEN,
        names.VAULT_ROLE_ID,
        names.VAULT_SECRET_ID,
    )
)


def kms_properties(table: str, client: Mapping[str, str], metadata: TableMetadata, vended: Any) -> Mapping[str, str]:
    """Return the properties with which a table's keys are asked for.

    Args:
        table: its name, for messages.
        client: this client's own configuration of the catalog.
        metadata: the table's.
        vended: what the server's answer holds as `key-management-credentials`; None for nothing.

    Raises:
        ConfigurationError: the client takes what is vended and does not say for which master keys; or the server sent something else than
            credentials of the client's key service. No message holds a value that it sent.
    """
    if vended is None or not names.KMS_VENDED.is_true(client):
        return client

    # The metadata is the server's as well: with no list it would choose which key these credentials are for.
    if AllowedKeys.of(client).globs is None:
        raise ConfigurationError(
            f"{names.KMS_VENDED.name}=true needs {names.ALLOWED_KEY_IDS.name}, the master keys for which the server may send credentials"
        )

    credentials = _for_key(table, str(metadata.properties.get(names.KEY_ID.name)), vended)
    if credentials is None:
        return client
    _check(table, client, credentials)

    return {name: value for name, value in client.items() if name not in _OWN_IDENTITY} | credentials


def _for_key(table: str, key_id: str, vended: Any) -> dict[str, str] | None:
    try:
        sets = [(list(each["kms-key-ids"]), dict(each["config"])) for each in vended]
    except (TypeError, KeyError, ValueError):
        raise ConfigurationError(
            f"{table}: the server sent key-management-credentials that are not a list of objects with kms-key-ids and config; unset "
            f"{names.KMS_VENDED.name} to use credentials of your own"
        ) from None

    return next((config for key_ids, config in sets if key_id in key_ids), None)


def _check(table: str, client: Mapping[str, str], credentials: Mapping[str, Any]) -> None:
    service = names.KMS_TYPE.chosen(client)
    expected = _CREDENTIALS.get(service)
    if expected is None:
        raise ConfigurationError(
            f"{table}: the server sent credentials for a key service, and this client takes them for {' and '.join(sorted(_CREDENTIALS))} "
            f"alone, by {names.KMS_TYPE.name}; unset {names.KMS_VENDED.name}"
        )

    # An endpoint would send this client's requests, and so the keys in them, elsewhere; a role or region likewise.
    if others := sorted(map(str, set(credentials) - expected)):
        raise ConfigurationError(
            f"{table}: the server sent {', '.join(map(repr, others))} among the credentials for the key service; it may send "
            f"{', '.join(sorted(expected))}. All else is for this client alone to set"
        )

    missing = sorted(name for name in expected - _TEMPORARY if not credentials.get(name))
    if missing or not all(isinstance(value, str) for value in credentials.values()):
        raise ConfigurationError(
            f"{table}: the credentials that the server sent for the key service are not whole: "
            f"{', '.join(missing) or 'a value'} is missing or no text"
        )
    for name, value in credentials.items():
        names.check_header_value(f"{table}: the server's {name}", value)
