"""The Hadoop KMS over real sockets: TLS, bounds of time and size, what is logged, and how it stops."""

from __future__ import annotations

import base64
import http.client
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tablecrypt.errors import ConfigurationError
from tablecrypt.hadoop_kms.requests import sent_iv
from tablecrypt.hadoop_kms.server import ServerSettings, tls_context
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tests.support.certificates import Authority
from tests.support.hadoop_kms import Bridge
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

MASTER = "orc-master"
PATIENCE = 120
MEBIBYTE = 1024 * 1024


def _kms() -> MemoryKeyManagementClient:
    return MemoryKeyManagementClient({"kms.memory.name": "orc-server"}, {MASTER: bytes(32)})


@contextmanager
def _serving(folder: Path, kms: MemoryKeyManagementClient | None = None, seconds: int = PATIENCE, **settings: Any) -> Iterator[Bridge]:
    """A bridge whose key pii the user etl may use."""
    with Bridge(folder, kms or _kms(), MASTER, {"pii": 16}, seconds=seconds, **settings) as bridge:
        bridge.allow("etl", "pii")
        yield bridge


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    with _serving(tmp_path) as bridge:
        yield bridge


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def _path(bridge: Bridge, what: str) -> str:
    return f"/token/{bridge.tokens['etl']}/kms/v1/{what}"


def _ask(bridge: Bridge, method: str, target: str, body: str | None = None, tls: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    address, port = "127.0.0.1", bridge.server.port
    connection = (
        http.client.HTTPSConnection(address, port, timeout=PATIENCE, context=tls)
        if tls
        else http.client.HTTPConnection(address, port, timeout=PATIENCE)
    )
    with closing(connection):
        connection.request(method, target, body)
        response = connection.getresponse()
        return response.status, response.read()


def _get(bridge: Bridge, target: str, tls: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    return _ask(bridge, "GET", target, tls=tls)


def _decrypt(bridge: Bridge, encrypted: bytes) -> tuple[int, bytes]:
    body = {
        "name": "pii",
        "iv": base64.b64encode(sent_iv(encrypted)).decode(),
        "material": base64.b64encode(encrypted).decode(),
    }
    return _ask(bridge, "POST", _path(bridge, "keyversion/pii%400/_eek?eek_op=decrypt"), json.dumps(body))


def _raw(bridge: Bridge, sent: bytes) -> bytes:
    """Send bytes and return all that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", bridge.server.port), timeout=PATIENCE) as connection:
        connection.sendall(sent)
        return _all_of(connection)


def _all_of(connection: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except ConnectionResetError:
        return received
    return received


def test_a_request_is_answered_and_the_connection_closed(bridge: Bridge) -> None:
    answer = _raw(bridge, f"GET {_path(bridge, 'keys/names')} HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"Connection: close" in head
    assert b"Cache-Control: no-store" in head
    assert b"Python" not in head
    assert body == b'["pii"]'


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /kms/v1/keys HTTP/1.1\r\nContent-Length: 10000000\r\n\r\n", b"413"),
        (b"POST /kms/v1/keys HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", b"413"),
        (b"POST /kms/v1/keys HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"411"),
        (b"POST /kms/v1/keys HTTP/1.1\r\nContent-Length: 1x\r\n\r\n", b"411"),
        (b"POST /kms/v1/keys HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        (b"BREW /kms/v1/keys HTTP/1.1\r\n\r\n", b"501"),
        (b"\x16\x03\x01 not HTTP\r\n\r\n", b"400"),
        (b"GET /kms/v1/keys HTTP/9.9\r\n\r\n", b"505"),
        (b"GET /kms/v1/keys/names HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(200)) + b"\r\n", b"431"),
        (b"GET /%s HTTP/1.1\r\n\r\n" % (b"x" * 30000), b"404"),
    ],
)
def test_a_request_out_of_bounds_is_refused(bridge: Bridge, sent: bytes, status: bytes) -> None:
    answer = _raw(bridge, sent)
    assert answer.partition(b"\r\n")[0].split()[1] == status
    assert b"RemoteException" in answer


def test_a_client_that_never_ends_its_headers_is_cut_off_by_size(bridge: Bridge) -> None:
    sent = 0
    with socket.create_connection(("127.0.0.1", bridge.server.port), timeout=PATIENCE) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while sent < 1024 * MEBIBYTE:
                sent += connection.send(b"X: " + b"x" * 1000 + b"\r\n")
    assert _get(bridge, _path(bridge, "keys/names"))[0] == 200


def _answer_of(ask: Callable[[], tuple[int, bytes]]) -> tuple[int, bytes]:
    """Ask until an answer comes: with a deadline of a second a busy machine may need more than one attempt."""
    answers: list[tuple[int, bytes]] = []

    def is_answered() -> bool:
        try:
            answers.append(ask())
        except (OSError, http.client.HTTPException):
            return False
        return True

    wait_until(is_answered, "no answer came")
    return answers[0]


def _assert_served(bridge: Bridge) -> None:
    assert _answer_of(lambda: _get(bridge, _path(bridge, "keys/names"))) == (200, b'["pii"]')


@pytest.mark.parametrize("opening", [b"", b"GET /kms/v1", b"POST /kms/v1/keys HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"])
def test_a_silent_client_loses_its_worker(tmp_path: Path, opening: bytes) -> None:
    with (
        _serving(tmp_path, seconds=1, workers=1) as bridge,
        socket.create_connection(("127.0.0.1", bridge.server.port), timeout=PATIENCE) as silent,
    ):
        silent.sendall(opening)
        _assert_served(bridge)
        assert _all_of(silent) == b""


def test_a_client_that_drips_bytes_is_dropped_like_a_silent_one(tmp_path: Path) -> None:
    with (
        _serving(tmp_path, seconds=1, workers=1) as bridge,
        socket.create_connection(("127.0.0.1", bridge.server.port), timeout=PATIENCE) as dripping,
    ):
        give_up = time.monotonic() + PATIENCE
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while time.monotonic() < give_up:
                dripping.sendall(b"x")
                time.sleep(0.02)
        _assert_served(bridge)


def test_a_client_that_opens_tls_and_says_nothing_loses_its_worker(tmp_path: Path, authority: Authority) -> None:
    certificate, private_key = authority.issue("slow-server")
    trusting = ssl.create_default_context(cafile=str(authority.path))
    with Bridge(tmp_path, _kms(), MASTER, {"pii": 16}, seconds=1, workers=1, certificate=certificate, private_key=private_key) as bridge:
        with socket.create_connection(("127.0.0.1", bridge.server.port), timeout=PATIENCE) as silent:
            assert _all_of(silent) == b""
        assert _answer_of(lambda: _get(bridge, "/kms/v1/keys/names", trusting))[0] == 403


def test_a_client_certificate_names_the_user(tmp_path: Path, authority: Authority) -> None:
    certificate, private_key = authority.issue("server")
    tls: dict[str, Any] = {"certificate": certificate, "private_key": private_key, "client_ca": authority.path}
    with Bridge(tmp_path, _kms(), MASTER, {"pii": 16}, seconds=PATIENCE, **tls) as bridge:
        bridge.allow("etl", "pii", certificates=("etl.example",))
        assert bridge.url().startswith("https://")
        statuses = {}
        for name in ("etl.example", "stranger.example"):
            context = ssl.create_default_context(cafile=str(authority.path))
            context.load_cert_chain(*authority.issue(name))
            statuses[name] = _get(bridge, "/kms/v1/keys/names", context)[0]
        without = ssl.create_default_context(cafile=str(authority.path))
        statuses["none"] = _get(bridge, "/kms/v1/keys/names", without)[0]
        statuses["token"] = _get(bridge, _path(bridge, "keys/names"), without)[0]
        assert statuses == {"etl.example": 200, "stranger.example": 403, "none": 403, "token": 200}


def test_a_certificate_of_another_authority_ends_the_handshake(tmp_path: Path, authority: Authority) -> None:
    certificate, private_key = authority.issue("server")
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "another CA")
    tls: dict[str, Any] = {"certificate": certificate, "private_key": private_key, "client_ca": authority.path}
    with Bridge(tmp_path, _kms(), MASTER, {"pii": 16}, seconds=PATIENCE, **tls) as bridge:
        bridge.allow("etl", "pii", certificates=("etl.example",))
        context = ssl.create_default_context(cafile=str(authority.path))
        context.load_cert_chain(*other.issue("etl.example"))
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            _get(bridge, "/kms/v1/keys/names", context)


def test_old_versions_of_tls_are_not_spoken(tmp_path: Path, authority: Authority) -> None:
    certificate, private_key = authority.issue("server")
    context = tls_context(ServerSettings(certificate=certificate, private_key=private_key))
    assert context is not None
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_without_tls_only_loopback_addresses_are_served(host: str) -> None:
    with pytest.raises(ConfigurationError, match="not a loopback address, and without TLS"):
        tls_context(ServerSettings(host=host))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost"])
def test_loopback_addresses_need_no_tls(host: str) -> None:
    assert tls_context(ServerSettings(host=host)) is None


def test_half_of_a_certificate_is_refused(tmp_path: Path, authority: Authority) -> None:
    certificate, private_key = authority.issue("server")
    _, other_key = authority.issue("other")
    (tmp_path / "empty.pem").touch()
    for settings in (
        ServerSettings(certificate=certificate),
        ServerSettings(private_key=private_key),
        ServerSettings(client_ca=authority.path),
        ServerSettings(certificate=certificate, private_key=other_key),
        ServerSettings(certificate=certificate, private_key=tmp_path / "absent"),
        ServerSettings(certificate=certificate, private_key=private_key, client_ca=tmp_path / "empty.pem"),
        ServerSettings(host="no.such.host.invalid"),
    ):
        with pytest.raises(ConfigurationError):
            tls_context(settings)


def test_a_port_that_is_taken_is_said_so(tmp_path: Path, bridge: Bridge) -> None:
    with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1 port {bridge.server.port}"):
        Bridge(tmp_path, _kms(), MASTER, {}, port=bridge.server.port)


def test_the_log_tells_who_did_what_and_no_key_or_token(bridge: Bridge, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    encrypted = bytes(range(16))
    status, content = _decrypt(bridge, encrypted)
    assert status == 200
    assert _get(bridge, _path(bridge, "key/other/_metadata"))[0] == 403
    assert _get(bridge, "/token/some-guess/kms/v1/keys/names")[0] == 403
    bridge.key_file.write_text("{}")
    assert _decrypt(bridge, encrypted)[0] == 400
    bridge.stop()
    log = caplog.text
    assert "user=etl peer=127.0.0.1 operation=decrypt key=pii@0 status=200" in log
    assert "refused: user etl is not allowed to use key other" in log
    assert f"the key file {bridge.key_file}" in log
    local_key = base64.b64decode(json.loads(content)["material"])
    for secret in (local_key, encrypted, bytes(32)):
        assert not [form for form in (repr(secret), secret.hex(), base64.b64encode(secret).decode()) if form in log]
    assert bridge.tokens["etl"] not in log
    assert "some-guess" not in log


class WaitingKms(MemoryKeyManagementClient):
    """A KMS that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__({"kms.memory.name": "orc-waiting"}, {MASTER: bytes(32)})
        self.asked = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        self.asked.set()
        assert self.go_on.wait(PATIENCE)
        return super().unwrap_key(wrapped_key, wrapping_key_id)


def test_a_request_under_way_is_answered_before_the_server_stops(tmp_path: Path) -> None:
    kms = WaitingKms()
    with _serving(tmp_path, kms) as bridge:
        kms.go_on.clear()
        kms.asked.clear()
        answers: list[tuple[int, bytes]] = []
        asking = threading.Thread(target=lambda: answers.append(_decrypt(bridge, bytes(16))))
        asking.start()
        assert kms.asked.wait(PATIENCE)
        bridge.server.stop()
        kms.go_on.set()
        asking.join(PATIENCE)
        bridge.stop()
        assert [status for status, _ in answers] == [200]
        with pytest.raises(ConnectionRefusedError):
            _get(bridge, _path(bridge, "keys/names"))


class BrokenKms(MemoryKeyManagementClient):
    """A KMS client with a bug that shows once `breaks` is set."""

    breaks = False

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        if self.breaks:
            raise ZeroDivisionError
        return super().unwrap_key(wrapped_key, wrapping_key_id)


def test_a_bug_is_answered_and_not_a_dropped_connection(tmp_path: Path) -> None:
    kms = BrokenKms({"kms.memory.name": "orc-broken"}, {MASTER: bytes(32)})
    with _serving(tmp_path, kms) as bridge:
        kms.breaks = True
        status, content = _decrypt(bridge, bytes(16))
    assert status == 500
    assert b"java.lang.IllegalStateException" in content


def test_many_clients_at_once_are_all_served_by_few_workers(tmp_path: Path) -> None:
    with _serving(tmp_path, workers=2) as bridge:
        statuses: list[int] = []
        clients = [threading.Thread(target=lambda: statuses.append(_decrypt(bridge, bytes(16))[0])) for _ in range(20)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(PATIENCE)
    assert statuses == [200] * 20
