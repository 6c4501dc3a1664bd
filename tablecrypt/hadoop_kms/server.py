"""The Hadoop KMS's sockets: HTTP/1.1 over TLS, one request per connection, everything bounded.

    accept ─► a free worker (at most `workers`; the next connection waits in the listen queue)
                └─► TLS handshake ─► request line and headers ─► body ─► HadoopKms.respond ─► response ─► close
                    └───────────── within `seconds` for all of it ────────┘    └ within `seconds` ┘

There is one deadline for a request, so a client that sends a byte now and then is dropped like a silent one. The KMS may take its own
time (`encryption.kms.retry-budget-ms`), and the response has its own deadline. Keep-alive is not offered: a worker belongs to a client
for a bounded time. A failure after a request was read is answered, because ORC takes a dropped connection for a missing right.

Without a certificate the server binds only to loopback addresses, because answers hold local keys. With `client_ca` TLS asks for a client
certificate; one that does not verify ends the handshake, and a client without one must show the allow list a token.

Each request is a line of the logger tablecrypt.hadoop_kms: user, address, operation, key, status, and the reason of a refusal.
Paths, which may hold tokens, queries, bodies and answers are never logged.

Raises ConfigurationError for an address, certificate or number that cannot be used.
"""

from __future__ import annotations

import io
import ipaddress
import logging
import socket
import ssl
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer
from typing import TYPE_CHECKING, Any, Final

from tablecrypt._bytes import flat_view
from tablecrypt.errors import ConfigurationError
from tablecrypt.hadoop_kms.protocol import HadoopKms, KmsResponse, refused
from tablecrypt.hadoop_kms.requests import ILLEGAL_STATE, KmsRequest
from tablecrypt.printable import one_line

if TYPE_CHECKING:
    from typing_extensions import Buffer

_log: Final = logging.getLogger("tablecrypt.hadoop_kms")
_LISTEN_QUEUE: Final = 128
_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True)
class ServerSettings:
    """Where to listen, as whom, and within which bounds.

    Attributes:
        host, port: where to listen; port 0 takes a free one.
        certificate, private_key: PEM files of the server's certificate chain and its key; both or none.
        client_ca: PEM file of the authority whose client certificates prove a user.
        workers: connections that are served at the same time.
        seconds: time for a request to arrive whole, the TLS handshake included, and again for its response to leave.
        max_bytes: the limit of a body; headers may have as much again.
    """

    host: str = "127.0.0.1"
    port: int = 9600
    certificate: Path | None = None
    private_key: Path | None = None
    client_ca: Path | None = None
    workers: int = 32
    seconds: float = 15.0
    max_bytes: int = 32 * 1024

    @property
    def scheme(self) -> str:
        return "http" if self.certificate is None else "https"


def common_name(connection: socket.socket) -> str | None:
    """The common name of the client's verified certificate."""
    if not isinstance(connection, ssl.SSLSocket):
        return None
    certificate: Any = connection.getpeercert() or {}
    names = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    # Of two common names, which one is the user would be a guess.
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
            # Optional, because users with a token have no certificate. One that is given has to verify.
            context.verify_mode = ssl.CERT_OPTIONAL
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the certificate, its private key or the client CA cannot be loaded: {error}") from error

    return context


def _no_password() -> str:
    # Without this OpenSSL would ask at the terminal.
    raise ValueError("the private key is encrypted, and the server cannot ask for its password")


def _addresses(settings: ServerSettings) -> list[Any]:
    try:
        return socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"{settings.host!r} is not an address of this machine: {error.strerror}") from error


def address_family(settings: ServerSettings) -> int:
    """Return the family (IPv4, IPv6) of the address to listen on."""
    return int(_addresses(settings)[0][0])


def check_loopback(settings: ServerSettings, why: str) -> None:
    """Raise ConfigurationError, which says `why`, unless every address that the host means is a loopback address."""
    # All addresses of the name: one that is reachable from outside is enough to give keys away.
    if not all(ipaddress.ip_address(address[4][0].partition("%")[0]).is_loopback for address in _addresses(settings)):
        raise ConfigurationError(f"{settings.host} is not a loopback address, and {why}")


class BoundedReader(io.RawIOBase):
    """Reads from a socket until a deadline and up to a number of bytes; beyond either it raises OSError."""

    def __init__(self, connection: socket.socket, deadline: float, max_bytes: int) -> None:
        self._connection = connection
        self._deadline = deadline
        self._left = max_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        with flat_view(buffer) as whole, whole[: self._left] as view:
            del buffer
            if not view:
                raise ConnectionAbortedError("the client sent too much")
            # Set anew before each read, or every byte would bring the whole time again.
            self._connection.settimeout(remaining(self._deadline))
            received = self._connection.recv_into(view)

        self._left -= received
        return received


class TimedWriter(io.BufferedIOBase):
    """Writes to a socket; each write may take a number of seconds."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds

    def writable(self) -> bool:
        return True

    def write(self, content: Buffer) -> int:
        self._connection.settimeout(self._seconds)
        self._connection.sendall(content)
        return memoryview(content).nbytes


def remaining(deadline: float) -> float:
    """Return the seconds until `deadline`, a moment of time.monotonic. Raises TimeoutError when it has come."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the connection's time is over")
    return left


class HadoopKmsServer:
    """Listens from construction on; `serve` runs until `stop` is called from another thread or a signal handler."""

    def __init__(self, service: HadoopKms, settings: ServerSettings) -> None:
        # A name is no proof: beyond this machine, anyone could claim to be a user with rights.
        if service.believes_names:
            check_loopback(settings, "names that anyone can claim would be believed: give users tokens or certificates")
        self._settings = settings
        self._listener = _Listener(service, settings, tls_context(settings))

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listener.server_address[1])

    @property
    def url(self) -> str:
        """Where clients find the protocol."""
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"{self._settings.scheme}://{host}:{self.port}/kms"

    def serve(self) -> None:
        """Answer until `stop`, then let the requests under way finish, which their deadline bounds, and close."""
        with self._listener:
            self._listener.serve_forever(_POLL_SECONDS)
            self._listener.finish()

    def stop(self) -> None:
        """Take no further connection. Returns at once; `serve` returns when the last request is answered."""
        self._listener.stop_soon()


class _Listener(TCPServer):
    """Accepts connections and hands each to a worker."""

    allow_reuse_address = True
    request_queue_size = _LISTEN_QUEUE

    def __init__(self, service: HadoopKms, settings: ServerSettings, tls: ssl.SSLContext | None) -> None:
        self.address_family = address_family(settings)
        self.service = service
        self.settings = settings
        self._tls = tls
        self._free = threading.Semaphore(settings.workers)
        self._workers = ThreadPoolExecutor(settings.workers, thread_name_prefix="hadoop-kms")
        self._stopping = threading.Event()
        try:
            super().__init__((settings.host, settings.port), BaseRequestHandler)
        except OSError as error:
            raise ConfigurationError(f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}") from error

    def stop_soon(self) -> None:
        self._stopping.set()
        # TCPServer.shutdown waits for the loop, which a signal handler in the loop's own thread must not.
        threading.Thread(target=self.shutdown, name="hadoop-kms-stop", daemon=True).start()

    def finish(self) -> None:
        self._workers.shutdown(wait=True)

    def process_request(self, request: Any, client_address: Any) -> None:
        # Waits before the connection is handed over, so that the executor's own queue, which has no bound, stays empty.
        while not self._free.acquire(timeout=_POLL_SECONDS):
            if self._stopping.is_set():
                self.shutdown_request(request)
                return
        self._workers.submit(self._work, request, client_address).add_done_callback(_log_failure)

    def _work(self, connection: socket.socket, peer: Any) -> None:
        # One deadline for the handshake and the request: a byte now and then does not hold a worker for ever.
        deadline = time.monotonic() + self.settings.seconds
        try:
            connection.settimeout(remaining(deadline))
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                connection.do_handshake()
            _Handler(connection, peer, self, deadline)
        except OSError as error:
            # TLS errors, time-outs and broken connections are all OSErrors, and the client's own affair.
            _log.info("peer=%s connection dropped: %s", peer[0], type(error).__name__)
        finally:
            self.shutdown_request(connection)
            self._free.release()


class _Handler(BaseHTTPRequestHandler):
    """Reads one request and sends one response."""

    protocol_version = "HTTP/1.1"
    server: _Listener

    def __init__(self, connection: socket.socket, peer: Any, server: _Listener, deadline: float) -> None:
        self._deadline = deadline
        super().__init__(connection, peer, server)

    def setup(self) -> None:
        self.connection = self.request
        self.rfile = io.BufferedReader(BoundedReader(self.connection, self._deadline, 2 * self.server.settings.max_bytes))
        self.wfile = TimedWriter(self.connection, self.server.settings.seconds)

    def handle(self) -> None:
        self.handle_one_request()

    def _serve(self) -> None:
        started = time.monotonic()
        response = self._response()
        self._send(response)
        _log.info(
            "user=%s peer=%s operation=%s key=%s status=%d ms=%d%s",
            response.user,
            self.client_address[0],
            response.operation,
            response.key,
            response.status,
            1000 * (time.monotonic() - started),
            f" refused: {one_line(response.reason)}" if response.reason else "",
        )

    do_GET = do_POST = do_PUT = do_DELETE = do_OPTIONS = _serve

    def _response(self) -> KmsResponse:
        length = self.headers.get("Content-Length", "0")
        # Two ways to say where the body ends let a proxy and this server see two different requests.
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit()):
            return refused(411, "a body needs a Content-Length")
        # The number of digits comes first: int() raises beyond 4,300 of them.
        if len(length) > 9 or int(length) > self.server.settings.max_bytes:
            return refused(413, f"a body has at most {self.server.settings.max_bytes} bytes")

        body = self.rfile.read(int(length))
        if len(body) < int(length):
            return refused(400, "the body is shorter than its Content-Length")

        cookie, certificate = self.headers.get("Cookie", ""), common_name(self.connection)
        hosts = self.headers.get_all("Host", [])
        # Of two hosts, which one the client meant would be a guess.
        host = hosts[0] if len(hosts) == 1 else ""
        request = KmsRequest(self.command, self.path, body, cookie, certificate, self.client_address[0], host)

        try:
            return self.server.service.respond(request)
        except Exception:  # noqa: BLE001 a dropped connection would be taken for a missing right
            _log.exception("peer=%s a request failed", request.peer)
            return refused(500, "this server failed: its log says why", ILLEGAL_STATE)

    def _send(self, response: KmsResponse) -> None:
        self.close_connection = True
        # For a request line that it does not understand the base class assumes a version without headers.
        self.request_version = self.protocol_version
        self.send_response_only(response.status)
        self.send_header("Date", self.date_time_string())
        # Answers hold local keys, which no proxy may keep.
        self.send_header("Cache-Control", "no-store")
        if response.cookie is not None:
            self.send_header("Set-Cookie", response.cookie)
        if response.content:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(response.content)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(response.content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is not HTTP, echoing none of it."""
        self._send(refused(int(code), "this is not a request of the protocol"))
        _log.info("peer=%s status=%d refused: not a request of the protocol", self.client_address[0], code)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """The base class would log paths."""


def _log_failure(work: Future[None]) -> None:
    error = work.exception()
    if error is not None:
        _log.error("a connection failed", exc_info=error)
