"""What the Hadoop KMS answers, request by request, without a socket."""

from __future__ import annotations

import base64
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.errors import ConfigurationError, KmsUnavailableError
from tablecrypt.hadoop_kms.access import AllowList, AllowListFile, Proofs, new_token, token_hash
from tablecrypt.hadoop_kms.master_keys import MasterKeyFile, create_key, roll_key
from tablecrypt.hadoop_kms.protocol import HadoopKms, KmsResponse, RateLimit
from tablecrypt.hadoop_kms.requests import AUTHORIZATION, ILLEGAL_STATE, SECURITY, KmsRequest, sent_iv
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.orc.key_providers import MasterKeyVersion
from tests.support.mutations import arbitrary

MASTER = "orc-master"
TOKENS = {"etl": new_token(), "analyst": new_token()}
ALLOW = f"""
[users.etl]
keys = ["pii", "cards", "gone"]
token-sha256 = ["{token_hash(TOKENS["etl"])}"]
[users.analyst]
keys = ["cards"]
masks = ["pii"]
token-sha256 = ["{token_hash(TOKENS["analyst"])}"]
"""


class SwitchedKms(MemoryKeyManagementClient):
    """A KMS in memory that can be down."""

    down = False

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        if self.down:
            raise KmsUnavailableError(f"{wrapping_key_id} cannot be asked")
        return super().unwrap_key(wrapped_key, wrapping_key_id)


class Clock:
    """Time that stands still until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A service over a fresh key file, and short ways to ask it."""

    def __init__(self, folder: Path, *, rate: RateLimit | None = None, believe_names: bool = False) -> None:
        self.path = folder / "keys.json"
        self.allow_file = folder / "allow.toml"
        self.allow_file.write_text(ALLOW)
        self.lists_read = 0
        self.kms = SwitchedKms({"kms.memory.name": "orc-protocol"}, {MASTER: bytes(32)})
        create_key(self.path, self.kms, "pii", MASTER, 1_700_000_000_000)
        create_key(self.path, self.kms, "cards", MASTER, 1_700_000_000_001, 32)
        self.keys = MasterKeyFile(self.path, self.kms)
        self.service = HadoopKms(self.keys, self.allow_list, rate or RateLimit(1, 10_000, Clock()), believe_names=believe_names)

    def allow_list(self) -> AllowList:
        self.lists_read += 1
        return AllowListFile(self.allow_file).read()

    def get(self, path: str, user: str | None = "etl") -> KmsResponse:
        return self.service.respond(KmsRequest("GET", _target(path, user)))

    def decrypt(self, version: str, encrypted: bytes, user: str | None = "etl", **changes: Any) -> KmsResponse:
        body = {"name": version.partition("@")[0], "iv": _b64(sent_iv(encrypted)), "material": _b64(encrypted)} | changes
        target = _target(f"keyversion/{version}/_eek?eek_op=decrypt", user)
        return self.service.respond(KmsRequest("POST", target, json.dumps(body).encode()))


def _target(path: str, user: str | None) -> str:
    return f"/token/{TOKENS[user]}/kms/v1/{path}" if user else f"/kms/v1/{path}"


def _b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _java_class(response: KmsResponse) -> str:
    return str(json.loads(response.content)["RemoteException"]["javaClassName"])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_metadata_are_those_that_orc_asks_for(bench: Bench) -> None:
    response = bench.get("key/cards/_metadata")
    assert json.loads(response.content) == {
        "name": "cards",
        "cipher": "AES/CTR/NoPadding",
        "length": 256,
        "description": None,
        "attributes": {},
        "created": 1_700_000_000_001,
        "versions": 1,
    }
    assert (response.user, response.operation, response.key) == ("etl", "metadata", "cards")


def test_decrypt_opens_what_the_provider_encrypts(bench: Bench) -> None:
    for name in ("pii", "cards"):
        local = bench.keys.create_local_key(bench.keys.current_version(name))
        for version in (f"{name}@0", f"{name}%400"):
            response = bench.decrypt(version, local.encrypted, name=name)
            assert json.loads(response.content) == {"name": name, "versionName": "EK", "material": _b64(local.key.reveal())}


def test_decrypt_takes_either_base64(bench: Bench) -> None:
    encrypted = bytes([0xFB, 0xFF] * 8)
    plain = bench.decrypt("pii@0", encrypted)
    safe = base64.urlsafe_b64encode(encrypted).decode().rstrip("=")
    assert bench.decrypt("pii@0", encrypted, material=safe).content == plain.content


def test_generate_gives_local_keys_that_decrypt_opens(bench: Bench) -> None:
    generated = json.loads(bench.get("key/pii/_eek?eek_op=generate&num_keys=3").content)
    assert len({each["iv"] for each in generated}) == 3
    for each in generated:
        encrypted = base64.b64decode(each["encryptedKeyVersion"]["material"])
        assert (each["versionName"], each["encryptedKeyVersion"]["versionName"]) == ("pii@0", "EEK")
        assert each["iv"] == _b64(sent_iv(encrypted))
        local = bench.keys.decrypt_local_key(MasterKeyVersion("pii", 0, 16), encrypted)
        assert json.loads(bench.decrypt("pii@0", encrypted).content)["material"] == _b64(local.reveal())


@pytest.mark.parametrize("count", ["0", "1001", "-1", "x", "99999999", "²"])
def test_generate_is_bounded(bench: Bench, count: str) -> None:
    assert bench.get(f"key/pii/_eek?eek_op=generate&num_keys={count}").status == 400


def test_names_and_versions_come_without_key_bytes(bench: Bench) -> None:
    roll_key(bench.path, bench.kms, "pii", 2)
    assert json.loads(bench.get("keys/names").content) == ["cards", "pii"]
    assert json.loads(bench.get("keys/names", "analyst").content) == ["cards"]
    assert [each["name"] for each in json.loads(bench.get("keys/metadata?key=pii&key=hidden&key=cards").content)] == ["pii", "cards"]
    assert json.loads(bench.get("key/pii/_currentversion").content) == {"name": "pii", "versionName": "pii@1"}
    assert json.loads(bench.get("keyversion/pii%400").content) == {"name": "pii", "versionName": "pii@0"}
    assert [each["versionName"] for each in json.loads(bench.get("key/pii/_versions").content)] == ["pii@0", "pii@1"]


def test_a_denied_key_stops_a_read_and_a_masked_one_does_not(bench: Bench) -> None:
    # ORC takes an IOException for a missing right and shows masks: the first must not be one.
    bench.allow_file.write_text(ALLOW.replace('masks = ["pii"]', ""))
    denied = bench.decrypt("pii@0", bytes(16), "analyst")
    bench.allow_file.write_text(ALLOW)
    masked = bench.decrypt("pii@0", bytes(16), "analyst")
    assert [(each.status, _java_class(each)) for each in (denied, masked)] == [(403, SECURITY), (403, AUTHORIZATION)]
    assert denied.reason == "user analyst is not allowed to use key pii"


@pytest.mark.parametrize("path", ["key/pii/_metadata", "key/pii/_currentversion", "key/pii/_versions", "keyversion/pii@0"])
def test_nothing_is_said_of_a_key_to_whom_it_is_denied(bench: Bench, path: str) -> None:
    known, unknown = bench.get(path, "analyst"), bench.get(path.replace("pii", "nokey"), "analyst")
    assert {known.status, unknown.status} == {403}


@pytest.mark.parametrize("target", ["/kms/v1/keys/names", "/token/guess/kms/v1/keys/names", "/token//kms/v1/keys/names"])
def test_who_proves_nothing_gets_nothing(bench: Bench, target: str) -> None:
    response = bench.service.respond(KmsRequest("GET", target, cookie='hadoop.auth="u=etl&p=etl&t=simple&e=9"'))
    assert (response.status, _java_class(response), response.user) == (403, SECURITY, "-")


def test_a_login_is_answered_so_that_the_client_goes_on_to_be_refused(bench: Bench) -> None:
    response = bench.service.respond(KmsRequest("OPTIONS", "/kms/v1/key/pii/_metadata?user.name=etl"))
    assert (response.status, response.content, response.cookie) == (200, b"", None)


def test_a_claimed_name_counts_only_where_names_are_believed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, believe_names=True)
    cookie = bench.service.respond(KmsRequest("OPTIONS", "/kms/v1/keys/names?user.name=analyst", host="localhost")).cookie
    assert cookie is not None
    believed = bench.service.respond(KmsRequest("GET", "/kms/v1/keys/names", cookie=cookie.partition(";")[0], host="localhost"))
    assert (believed.user, json.loads(believed.content)) == ("analyst", ["cards"])
    for odd in ('a"b', "a%0d%0aSet-Cookie:x", "a&p=b", "x" * 200, ""):
        response = bench.service.respond(KmsRequest("OPTIONS", f"/kms/v1/keys/names?user.name={odd}", host="localhost")).cookie
        assert response is None or '"u=a&p=a&' in response


@pytest.mark.parametrize(
    ("host", "is_believed"),
    [
        ("localhost", True),
        ("LOCALHOST:9600", True),
        ("127.0.0.1:9600", True),
        ("127.8.8.8", True),
        ("[::1]:9600", True),
        ("pages.example:9600", False),
        ("localhost.pages.example", False),
        ("127.0.0.1.pages.example:9600", False),
        ("10.0.0.7", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_a_name_is_believed_only_where_the_client_asked_this_machine_by_a_name_of_its_own(
    tmp_path: Path, host: str, is_believed: bool
) -> None:
    """The page of a website whose name was made to mean 127.0.0.1 asks through a browser on this machine, under the website's name."""
    bench = Bench(tmp_path, believe_names=True)

    login = bench.service.respond(KmsRequest("OPTIONS", "/kms/v1/keys/names?user.name=etl", host=host))
    names = bench.service.respond(KmsRequest("GET", "/kms/v1/keys/names", cookie='hadoop.auth="u=etl&p=etl&t=simple&e=9"', host=host))

    assert (login.cookie is not None, names.status == 200) == (is_believed, is_believed)


def test_unknown_keys_and_versions_are_404(bench: Bench) -> None:
    for response in (bench.get("key/gone/_metadata"), bench.decrypt("pii@1", bytes(16)), bench.get("keyversion/pii@7")):
        assert response.status == 404


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "cards"},
        {"iv": _b64(bytes(16))},
        {"iv": "not base64!"},
        {"material": None},
        {"material": 5},
        {"material": ""},
        {"material": _b64(bytes(15))},
        {"material": _b64(bytes(17))},
        {"material": _b64(bytes(32))},
    ],
)
def test_what_is_no_local_key_of_orc_is_refused(bench: Bench, changes: dict[str, Any]) -> None:
    response = bench.decrypt("pii@0", bytes(16), **changes)
    assert (response.status, response.operation) == (400, "decrypt")
    assert ILLEGAL_STATE not in response.content.decode()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "keys"),
        ("DELETE", "key/pii"),
        ("POST", "key/pii"),
        ("POST", "key/pii/_invalidatecache"),
        ("POST", "keyversion/pii@0/_eek?eek_op=reencrypt"),
        ("POST", "keyversion/pii@0/_eek"),
        ("GET", "keyversion/pii@0/_eek?eek_op=decrypt"),
        ("PUT", "key/pii/_metadata"),
        ("GET", ""),
    ],
)
def test_what_orc_does_not_need_is_not_served(bench: Bench, method: str, path: str) -> None:
    assert bench.service.respond(KmsRequest(method, _target(path, "etl"))).status == 405


@pytest.mark.parametrize("version", ["pii", "pii@", "pii@first", "pii@0@0", "@0"])
def test_what_cannot_be_a_key_version_is_refused(bench: Bench, version: str) -> None:
    assert bench.get(f"keyversion/{version}").status == 400
    assert bench.decrypt(version, bytes(16)).status == 400


@pytest.mark.parametrize("name", ["", ".", "..", "%2e%2e", "a%2Fb", "a%00b", "a%0ab", "x" * 200, "%ff"])
def test_what_cannot_be_a_name_is_refused(bench: Bench, name: str) -> None:
    assert bench.get(f"key/{name}/_metadata").status in {400, 405}


def test_a_kms_that_is_down_stops_a_read(bench: Bench) -> None:
    bench.kms.down = True
    response = bench.decrypt("pii@0", bytes(16))
    assert (response.status, _java_class(response)) == (503, ILLEGAL_STATE)
    # The client gets to know the kind of failure, the log its words.
    assert MASTER not in response.content.decode()
    assert MASTER in response.reason


def test_an_allow_list_that_is_broken_stops_a_read(bench: Bench) -> None:
    bench.allow_file.write_text("[users.etl")
    response = bench.decrypt("pii@0", bytes(16))
    assert (response.status, _java_class(response)) == (500, ILLEGAL_STATE)


def test_each_user_has_a_rate_of_its_own_and_strangers_share_that_of_their_address(tmp_path: Path) -> None:
    clock = Clock()
    bench = Bench(tmp_path, rate=RateLimit(1, 2, clock))
    statuses = [bench.get("keys/names").status for _ in range(3)]
    assert (statuses, bench.get("keys/names", "analyst").status) == ([200, 200, 429], 200)
    assert [bench.get("keys/names", None).status for _ in range(3)] == [403, 403, 429]
    clock.now = 1.0
    assert [bench.get("keys/names").status for _ in range(2)] == [200, 429]


def test_a_request_without_proof_is_counted_before_the_allow_list_is_looked_at(tmp_path: Path) -> None:
    bench = Bench(tmp_path, rate=RateLimit(1, 2, Clock()))
    assert [bench.get("keys/names", None).status for _ in range(4)] == [403, 403, 429, 429]
    assert bench.lists_read == 0


def test_an_allow_list_is_parsed_when_its_bytes_change_and_not_for_each_request(tmp_path: Path) -> None:
    path, parsed = tmp_path / "allow.toml", 0

    def parse(text: str) -> dict[str, Any]:
        nonlocal parsed
        parsed += 1
        return tomllib.loads(text)

    path.write_text(ALLOW)
    listed = AllowListFile(path, parse)
    first = [listed.read() for _ in range(50)]
    assert parsed == 1
    path.write_text(ALLOW.replace("etl", "elt"))
    assert listed.read() is not first[0]
    assert parsed == 2
    path.write_text("users = no list")
    for _ in range(50):
        with pytest.raises(ConfigurationError, match="is not TOML"):
            listed.read()
    assert parsed == 3
    path.write_text(ALLOW)
    assert listed.read().user(Proofs(token=TOKENS["etl"])) == "etl"


def test_no_answer_or_request_shows_a_key_or_token(bench: Bench) -> None:
    response = bench.decrypt("pii@0", bytes(16))
    material = json.loads(response.content)["material"]
    assert material not in repr(response)
    assert TOKENS["etl"] not in repr(KmsRequest("GET", _target("keys/names", "etl")))


PATHS = st.sampled_from(
    ["key/pii/_metadata", "keyversion/pii@0/_eek?eek_op=decrypt", "keys/metadata?key=pii", "key/pii/_eek?eek_op=generate"]
)
BODY = json.dumps({"name": "pii", "iv": "AAAAAAAAAAAAAAAAAAAAAA", "material": "AAAAAAAAAAAAAAAAAAAAAA"}).encode()
JSON = st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@pytest.fixture(scope="module")
def shared_bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("any-request"))


@given(
    method=st.sampled_from(["GET", "POST", "OPTIONS", "PUT"]),
    path=st.text(max_size=60) | PATHS,
    body=arbitrary([BODY], max_size=60) | JSON.map(lambda value: json.dumps(value).encode()),
)
def test_any_request_gets_an_answer(shared_bench: Bench, method: str, path: str, body: bytes) -> None:
    response = shared_bench.service.respond(KmsRequest(method, _target(path, "etl"), body))
    assert response.status in {200, 400, 404, 405}
