"""The client of a Hadoop KMS: against our own server, and against servers that answer badly."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablecrypt import orc
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import (
    ConfigurationError,
    FormatError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    KmsCredentialsError,
    KmsError,
    KmsUnavailableError,
    TablecryptError,
)
from tablecrypt.hadoop_kms import HadoopKmsKeys
from tablecrypt.hadoop_kms.master_keys import roll_key
from tablecrypt.hadoop_kms.requests import AUTHORIZATION, SECURITY
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.kms.resilient import RetryPolicy
from tablecrypt.orc.key_providers import KeyProvider, KeyProviderKind, MasterKeyVersion
from tests.kms.services.http_service import Answer, HttpService, Request
from tests.support.certificates import Authority
from tests.support.hadoop_kms import Bridge

pytestmark = pytest.mark.slow

MASTER = "orc-master"
ONCE = RetryPolicy(budget_seconds=0)


@pytest.fixture
def kms() -> MemoryKeyManagementClient:
    return MemoryKeyManagementClient({"kms.memory.name": "orc-client"}, {MASTER: bytes(32)})


@pytest.fixture
def bridge(tmp_path: Path, kms: MemoryKeyManagementClient) -> Iterator[Bridge]:
    with Bridge(tmp_path, kms, MASTER, {"pii": 16, "cards": 32}, seconds=120) as bridge:
        bridge.allow("etl", "pii", "cards", "gone")
        bridge.allow("analyst", "cards", masks=("pii",))
        yield bridge


def _keys(bridge: Bridge, user: str | None = "etl") -> HadoopKmsKeys:
    return HadoopKmsKeys(bridge.url(bridge.tokens[user] if user else None), retry=ONCE)


def test_local_keys_are_those_of_the_key_file(bridge: Bridge) -> None:
    keys = _keys(bridge)
    assert isinstance(keys, KeyProvider)
    assert keys.kind is KeyProviderKind.HADOOP
    for name, length in (("pii", 16), ("cards", 32)):
        master = keys.current_version(name)
        assert master == MasterKeyVersion(name, 0, length)
        local = keys.create_local_key(master)
        assert local.key == bridge.keys.decrypt_local_key(master, local.encrypted)
        assert local.key == keys.decrypt_local_key(master, local.encrypted)
    keys.close()


def test_a_rolled_key_is_seen_and_the_older_version_opens(bridge: Bridge, kms: MemoryKeyManagementClient) -> None:
    keys = _keys(bridge)
    old = keys.create_local_key(keys.current_version("pii"))
    roll_key(bridge.key_file, kms, "pii", 9)
    assert keys.current_version("pii").version == 1
    assert keys.decrypt_local_key(MasterKeyVersion("pii", 0, 16), old.encrypted) == old.key


def test_refusals_and_failures_are_told_apart(bridge: Bridge, kms: MemoryKeyManagementClient) -> None:
    pii = MasterKeyVersion("pii", 0, 16)
    for keys, error, said in (
        (_keys(bridge, "analyst"), KmsAccessDeniedError, "refuses pii"),
        (_keys(bridge, None), KmsError, "check the user's token"),
    ):
        with pytest.raises(error, match=said):
            keys.decrypt_local_key(pii, bytes(16))
        with pytest.raises(error, match=said):
            keys.current_version("pii")
    with pytest.raises(KeyNotFoundError):
        _keys(bridge).current_version("gone")
    with pytest.raises(KeyNotFoundError):
        _keys(bridge).decrypt_local_key(MasterKeyVersion("pii", 3, 16), bytes(16))
    keys = _keys(bridge)
    bridge.allow_file.write_text("[")
    with pytest.raises(KmsUnavailableError):
        keys.current_version("pii")
    bridge.stop()
    with pytest.raises(KmsUnavailableError, match="was not reached"):
        keys.current_version("pii")


def test_the_next_host_is_asked_when_one_is_down(bridge: Bridge) -> None:
    port = bridge.server.port
    # 127.0.0.2 is a loopback address where nobody listens.
    several = HadoopKmsKeys(f"kms://http@127.0.0.2;127.0.0.1:{port}/token/{bridge.tokens['etl']}/kms", retry=ONCE)
    assert several.current_version("pii").length == 16


def test_tls_and_client_certificates(tmp_path: Path, kms: MemoryKeyManagementClient, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    certificate, private_key = authority.issue("server")
    etl_certificate, etl_key = authority.issue("etl.example")
    client_certificate = (str(etl_certificate), str(etl_key))
    tls: dict[str, Any] = {"certificate": certificate, "private_key": private_key, "client_ca": authority.path}
    with Bridge(tmp_path, kms, MASTER, {"pii": 16}, seconds=120, **tls) as bridge:
        bridge.allow("etl", "pii", certificates=("etl.example",))
        keys = HadoopKmsKeys(bridge.url(), client_certificate=client_certificate, ca=str(authority.path), retry=ONCE)
        assert keys.create_local_key(keys.current_version("pii")).key != Secret(bytes(16))
        with pytest.raises(KmsError, match="check the user's token"):
            HadoopKmsKeys(bridge.url(), ca=str(authority.path), retry=ONCE).current_version("pii")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.path.with_name("server.pem")))
        assert keys.current_version("pii").length == 16
        with pytest.raises(KmsUnavailableError, match="SSLError"):
            HadoopKmsKeys(bridge.url(), client_certificate=client_certificate, retry=ONCE).current_version("pii")


def test_no_error_log_or_repr_shows_the_token_or_a_key(bridge: Bridge, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    keys = _keys(bridge)
    local = keys.create_local_key(keys.current_version("pii"))
    shown = [repr(keys), caplog.text]
    bridge.stop()
    with pytest.raises(KmsUnavailableError) as caught:
        keys.current_version("pii")
    shown += [str(caught.value), repr(caught.value.__context__ if not caught.value.__suppress_context__ else None)]
    key = local.key.reveal()
    for secret in (bridge.tokens["etl"], key.hex(), base64.b64encode(key).decode(), repr(key)):
        assert not [text for text in shown if secret in text]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "kms",
        "ftp://host/kms",
        "http://",
        "https://user:pass@host/kms",
        "https://host/kms?x=1",
        "http://[::1",
        "http://host:99999/kms",
        "kms://ftp@host/kms",
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="has a URL like"):
        HadoopKmsKeys(url)


@pytest.mark.parametrize("name", ["", "a@1", "../x", "a/b", "a\r\nb", "x" * 300])
def test_a_name_that_cannot_be_one_is_never_sent(name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name"):
        HadoopKmsKeys("http://127.0.0.1:1/kms").current_version(name)


@pytest.mark.parametrize("encrypted", [b"", bytes(15), bytes(32)])
def test_a_local_key_of_another_length_is_never_sent(encrypted: bytes) -> None:
    with pytest.raises(FormatError):
        HadoopKmsKeys("http://127.0.0.1:1/kms").decrypt_local_key(MasterKeyVersion("pii", 0, 16), encrypted)


class OddKms(HttpService):
    """Answers everything with the same."""

    odd = Answer(200, {})

    def answer(self, request: Request) -> Answer:
        return self.odd


@pytest.fixture(scope="module")
def odd_kms() -> Iterator[OddKms]:
    service = OddKms()
    yield service
    service.stop()


def test_hadoops_simple_authentication_gets_the_name(odd_kms: OddKms) -> None:
    odd_kms.odd = Answer(200, {"versions": 2, "length": 128})
    assert HadoopKmsKeys(odd_kms.url + "/kms", user="a&b", retry=ONCE).current_version("my key") == MasterKeyVersion("my key", 1, 16)
    assert odd_kms.requests[-1].path == "/kms/v1/key/my%20key/_metadata?user.name=a%26b"


def test_a_redirect_is_not_followed(odd_kms: OddKms) -> None:
    odd_kms.odd = Answer(302, {}, {"Location": odd_kms.url + "/elsewhere"})
    before = len(odd_kms.requests)
    with pytest.raises(KmsError):
        HadoopKmsKeys(odd_kms.url, retry=ONCE).current_version("pii")
    assert len(odd_kms.requests) == before + 1


@pytest.mark.parametrize(
    ("status", "said", "error"),
    [
        (401, {"message": "no"}, KmsCredentialsError),
        (403, {"message": "no", "javaClassName": AUTHORIZATION}, KmsAccessDeniedError),
        (404, {"message": "there is no such key or version"}, KeyNotFoundError),
    ],
)
def test_each_refusal_has_its_error(odd_kms: OddKms, status: int, said: dict[str, str], error: type[TablecryptError]) -> None:
    odd_kms.odd = Answer(status, {"RemoteException": said})
    with pytest.raises(error):
        HadoopKmsKeys(odd_kms.url, retry=ONCE).current_version("pii")


@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize(
    "body", [{}, [], "not found", {"RemoteException": "no"}, {"RemoteException": {"message": "no", "javaClassName": SECURITY}}]
)
def test_a_refusal_that_does_not_speak_of_a_right_is_no_word_about_one(odd_kms: OddKms, status: int, body: Any) -> None:
    """As of a proxy, of a path that is none of a KMS, and of a token that is none."""
    odd_kms.odd = Answer(status, body)
    with pytest.raises(KmsError, match=r"check the (path of its URL|user's token)") as error:
        HadoopKmsKeys(odd_kms.url, retry=ONCE).current_version("pii")
    assert not isinstance(error.value, KmsAccessDeniedError)


@pytest.mark.parametrize(("wrong", "advice"), [("path", "the path of its URL"), ("token", "the user's token")])
def test_a_wrong_path_or_token_shows_no_masks(bridge: Bridge, tmp_path: Path, wrong: str, advice: str) -> None:
    file = tmp_path / "people.orc"
    orc.write_table(pa.table({"ssn": ["1", "2"]}), str(file), encrypt={"pii": ["ssn"]}, keys=_keys(bridge))
    url = bridge.url(bridge.tokens["etl"]) + "s" if wrong == "path" else bridge.url("0" * 64)

    with pytest.raises(KmsError, match=f"check {advice}"):
        orc.read_table(str(file), HadoopKmsKeys(url, retry=ONCE), masked=True)


def test_hadoops_own_server_says_400_of_a_version_it_does_not_have(odd_kms: OddKms) -> None:
    said = {"message": "'pii@7' not found", "exception": "IllegalArgumentException", "javaClassName": "java.lang.IllegalArgumentException"}
    odd_kms.odd = Answer(400, {"RemoteException": said})
    with pytest.raises(KeyNotFoundError, match="has no pii@7"):
        HadoopKmsKeys(odd_kms.url, retry=ONCE).decrypt_local_key(MasterKeyVersion("pii", 7, 16), bytes(16))
    odd_kms.odd = Answer(400, {"RemoteException": {**said, "message": "no"}})
    with pytest.raises(KmsError, match="refused the request"):
        HadoopKmsKeys(odd_kms.url, retry=ONCE).decrypt_local_key(MasterKeyVersion("pii", 7, 16), bytes(16))


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_pass_is_asked_again(odd_kms: OddKms, status: int) -> None:
    odd_kms.odd = Answer(status, {})
    times = iter([0.0, 0.0, 0.0, 100.0])
    waits: list[float] = []
    patient = RetryPolicy(budget_seconds=10, clock=lambda: next(times), sleep=waits.append, random=lambda: 0.5)
    with pytest.raises(KmsUnavailableError):
        HadoopKmsKeys(odd_kms.url, retry=patient).current_version("pii")
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("status", "headers"),
    [(200, {"Transfer-Encoding": "chunked"}), (200, {"Content-Encoding": "gzip"}), (302, {"Location": "//[::1"})],
)
def test_an_answer_that_breaks_off_or_cannot_be_decoded_is_none(odd_kms: OddKms, status: int, headers: Mapping[str, str]) -> None:
    odd_kms.odd = Answer(status, {"versions": 1, "length": 128}, headers)
    with pytest.raises(KmsUnavailableError, match="was not reached for pii"):
        HadoopKmsKeys(odd_kms.url, retry=ONCE).current_version("pii")


@pytest.mark.parametrize("versions", [0, -1, 2**31, 10**400, True])
def test_a_number_of_versions_that_no_file_can_hold_is_refused(odd_kms: OddKms, versions: int) -> None:
    odd_kms.odd = Answer(200, {"versions": versions, "length": 128})
    with pytest.raises(KmsError, match="versions"):
        HadoopKmsKeys(odd_kms.url, retry=ONCE).current_version("pii")


@settings(max_examples=40)
@given(
    body=st.dictionaries(
        st.sampled_from(["versions", "length", "material", "name"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=30) | st.just("A" * 22) | st.lists(st.integers(), max_size=2),
    )
)
def test_whatever_the_kms_answers_only_our_errors_come_out(odd_kms: OddKms, body: Mapping[str, Any]) -> None:
    odd_kms.odd = Answer(200, body)
    keys = HadoopKmsKeys(odd_kms.url, retry=ONCE)
    for ask in (lambda: keys.current_version("pii"), lambda: keys.decrypt_local_key(MasterKeyVersion("pii", 0, 16), bytes(16))):
        try:
            ask()
        except TablecryptError:
            continue
    keys.close()
