"""From catalog properties to a key management client.

    encryption.kms-type = aws | gcp | azure | vault | local | memory
    encryption.kms-impl = package.module.Class   (or package.module:Class), constructed with the properties; also named py-kms-impl
                        | a class name of Iceberg Java, which means this package's client of the same service

Exactly one of the two is set. A class that kms-impl names is imported, so properties are trusted as code is: take them from the
catalog's own configuration, never from a table.
Every client comes wrapped in a ResilientKeyManagementClient. Raises ConfigurationError, or MissingExtraError naming the pip extra.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final, cast

from tablecrypt._per_process import PerProcess
from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import ConfigurationError
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.resilient import ResilientKeyManagementClient
from tablecrypt.properties import KMS_IMPL, KMS_TYPE, as_text, check_own_properties, for_executors, is_foreign_kms, kms_impl


@dataclass(frozen=True)
class _Service:
    """Where a built-in client lives. Its module raises MissingExtraError on import where its SDK is not installed."""

    module: str
    class_name: str


_SERVICES: Final[Mapping[str, _Service]] = {
    "aws": _Service("tablecrypt.kms.aws", "AwsKeyManagementClient"),
    "gcp": _Service("tablecrypt.kms.gcp", "GcpKeyManagementClient"),
    "azure": _Service("tablecrypt.kms.azure", "AzureKeyManagementClient"),
    "vault": _Service("tablecrypt.kms.vault", "VaultKeyManagementClient"),
    "local": _Service("tablecrypt.kms.local_file", "LocalFileKeyManagementClient"),
    "memory": _Service("tablecrypt.kms.memory", "MemoryKeyManagementClient"),
}
_MOST_CLIENTS: Final = 256
_JAVA_CLASSES: Final[Mapping[str, str]] = {
    "org.apache.iceberg.aws.AwsKeyManagementClient": "aws",
    "org.apache.iceberg.gcp.GcpKeyManagementClient": "gcp",
    "org.apache.iceberg.azure.keymanagement.AzureKeyManagementClient": "azure",
}


@checked_arguments()
def load_kms(properties: Mapping[str, str]) -> ResilientKeyManagementClient:
    """Return a new client for the key service that the properties name, with its own cache and counters. It sends no request yet.

    Raises:
        ConfigurationError: a property is misspelt or has a value that cannot be read, or the properties contradict each other.
        MissingExtraError: the client's package is not installed; the message names the pip extra.
    """
    properties = as_text(properties)
    # A misspelt property would be passed over in silence, and a restriction such as the allowed keys with it.
    check_own_properties(properties, "catalog", is_foreign_kms(properties))
    return ResilientKeyManagementClient.from_properties(_constructor(properties)(properties), properties)


def shared_kms(properties: Mapping[str, str]) -> ResilientKeyManagementClient:
    """The client of these properties in this process: the same object for everyone who passes the same KMS-relevant properties.

    Closing it empties it for all; the next call opens it again. A forked child gets its own client. Pickled, it is its
    properties alone: unpickled, it is the shared client of that process, without a key in it.
    """
    registry = _registry.get()
    name = _relevant(properties)
    with registry.lock:
        client = registry.clients.pop(name, None)
        if client is None:
            client = _SharedClient.from_properties(_constructor(properties)(properties), properties)
            client.properties = dict(name)
        # Temporary credentials make one client after another: the longest unused is left to the tables that still have it.
        registry.clients[name] = client
        if len(registry.clients) > _MOST_CLIENTS:
            del registry.clients[next(iter(registry.clients))]
        return client


def properties_of(kms: KeyManagementClient) -> Mapping[str, str]:
    """Return the properties that tell a shared client apart: those with which another process reaches the same service.

    Raises:
        ConfigurationError: the client is not one that `shared_kms` returned.
    """
    if not isinstance(kms, _SharedClient):
        raise ConfigurationError(f"{type(kms).__name__} was not made from a catalog's properties, so other processes cannot make it again")
    return kms.properties


class _SharedClient(ResilientKeyManagementClient):
    """The one client of these properties in a process."""

    properties: Mapping[str, str]

    def __reduce__(self) -> tuple[Callable[[Mapping[str, str]], ResilientKeyManagementClient], tuple[Mapping[str, str]]]:  # type: ignore[override]
        return shared_kms, (self.properties,)


@dataclass
class _Registry:
    clients: dict[tuple[tuple[str, str], ...], _SharedClient] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_registry: Final = PerProcess(_Registry)


def _relevant(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The properties that tell two clients apart: those that a client reads, not a warehouse or a URI."""
    return tuple(sorted(for_executors(properties).items()))


def _constructor(properties: Mapping[str, str]) -> Callable[[Mapping[str, str]], KeyManagementClient]:
    kms_type, impl = KMS_TYPE.chosen(properties), kms_impl(properties)
    # Whichever one won, tables could go under another service's keys than was meant.
    if kms_type and impl:
        raise ConfigurationError(f"{KMS_TYPE.name} ({kms_type}) and {KMS_IMPL.name} ({impl}) are both set: keep one of them")
    if kms_type:
        return _built_in(kms_type)
    if not impl:
        raise ConfigurationError(
            f"no key management service is named: set the catalog property {KMS_TYPE.name} to one of {', '.join(_SERVICES)}, "
            f"or {KMS_IMPL.name} to a Python class path"
        )
    # Looked up and never imported: a configuration that Java shares names the same service here.
    if impl in _JAVA_CLASSES:
        return _built_in(_JAVA_CLASSES[impl])

    return _from_class_path(impl)


def _built_in(kms_type: str) -> Callable[[Mapping[str, str]], KeyManagementClient]:
    service = _SERVICES[kms_type]
    return cast("Callable[[Mapping[str, str]], KeyManagementClient]", getattr(import_module(service.module), service.class_name))


def _from_class_path(path: str) -> Callable[[Mapping[str, str]], KeyManagementClient]:
    if path.startswith("org.apache.iceberg."):
        raise ConfigurationError(f"{KMS_IMPL.name} {path!r} is a Java class; those known here are {', '.join(_JAVA_CLASSES)}")

    module_name, _, class_name = path.replace(":", ".").rpartition(".")
    if not module_name or not class_name:
        raise ConfigurationError(f"{KMS_IMPL.name} {path!r} is not a class path: write package.module.Class")

    try:
        found = getattr(import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{KMS_IMPL.name} {path!r} cannot be imported: {error}") from error

    # Checked at the start: a class without unwrap_key would fail only when a table is read.
    missing = [name for name in ("wrap_key", "unwrap_key", "generate_key", "close") if not callable(getattr(found, name, None))]
    if missing or not callable(found):
        raise ConfigurationError(
            f"{KMS_IMPL.name} {path!r} is not a key management client: it lacks {', '.join(missing) or 'a constructor'}"
        )

    return cast("Callable[[Mapping[str, str]], KeyManagementClient]", found)
