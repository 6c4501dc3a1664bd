"""Where the bridge listens, as whom, and what it asks of an address: TLS, or loopback.

Raises ConfigurationError for an address, certificate or number that cannot be used.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tablecrypt.errors import ConfigurationError


@dataclass(frozen=True)
class ServerSettings:
    """Where to listen, as whom, and within which bounds.

    Attributes:
        host, port: where to listen; port 0 takes a free one.
        certificate, private_key: PEM files of the server's certificate chain and its key; both or none.
        client_ca: PEM file of the authority whose client certificates prove a user.
        workers: connections that are served at the same time.
        seconds: time for a request to arrive whole, the TLS handshake included, and again for its answer to leave.
        most_bytes: the most of a body; headers may take as much again.
    """

    host: str = "127.0.0.1"
    port: int = 9600
    certificate: Path | None = None
    private_key: Path | None = None
    client_ca: Path | None = None
    workers: int = 32
    seconds: float = 15.0
    most_bytes: int = 32 * 1024

    @property
    def scheme(self) -> str:
        return "http" if self.certificate is None else "https"


def common_name(connection: socket.socket) -> str | None:
    """The common name of the client's verified certificate."""
    if not isinstance(connection, ssl.SSLSocket):
        return None
    certificate: Any = connection.getpeercert() or {}
    names = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    return names[0] if len(names) == 1 else None


def tls_context(settings: ServerSettings) -> ssl.SSLContext | None:
    """Return how the server speaks TLS; None where it need not, on loopback without a certificate."""
    if (settings.certificate is None) != (settings.private_key is None):
        raise ConfigurationError("the certificate and its private key go together: one of them is missing")
    if settings.certificate is None:
        if settings.client_ca is not None:
            raise ConfigurationError("client certificates need TLS: give the server a certificate too")
        check_loopback(settings, "without TLS keys would cross the network: give a certificate")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.certificate, settings.private_key, password=_no_password)
        if settings.client_ca is not None:
            context.load_verify_locations(settings.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the certificate, its private key or the client CA cannot be loaded: {error}") from error
    return context


def _no_password() -> str:
    # Without this OpenSSL would ask at the terminal.
    raise ValueError("the private key is encrypted, and there is no one to ask for its password")


def _addresses(settings: ServerSettings) -> list[Any]:
    try:
        return socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"{settings.host!r} is no address of this machine: {error.strerror}") from error


def address_family(settings: ServerSettings) -> int:
    """Return the family (IPv4, IPv6) of the address to listen on."""
    return int(_addresses(settings)[0][0])


def check_loopback(settings: ServerSettings, why: str) -> None:
    """Raise ConfigurationError, which says `why`, unless every address that the host means is a loopback address."""
    if not all(ipaddress.ip_address(address[4][0].partition("%")[0]).is_loopback for address in _addresses(settings)):
        raise ConfigurationError(f"{settings.host} is not a loopback address, and {why}")
