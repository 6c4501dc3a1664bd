"""The registry of properties: what is a secret, what executors get, what a table and a server may set."""

from __future__ import annotations

import ast
import traceback
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError
from tablecrypt.kms.factory import shared_kms
from tablecrypt.spark.network import check_credentials_stay_private, kms_properties
from tablecrypt.spark.source.source_options import SourceOptions

REPOSITORY = Path(__file__).parents[1]
CLUSTER = {"spark.master": "spark://driver:7077"}
SENSITIVE = [each.name for each in names.registered() if each.sensitive]
CODE = [each.name for each in names.registered() if each.names_code]
RECEIVERS = [
    *("uri", "oauth2-server-uri", "credential", "token", "header.X-Key", "rest.sigv4-enabled", "ssl", "snapshot-loading-mode", "auth"),
    *("s3.endpoint", "s3.proxy-uri", "s3.signer", "s3.signer.uri", "s3.signer.endpoint", "s3.role-arn", "s3.profile-name"),
    *("gcs.service.host", "gcs.session-kwargs", "adls.account-host", "adls.account-name", "adls.connection-string", "hf.endpoint"),
    *("adls.blob-storage-authority", "adls.dfs-storage-authority", "hdfs.host", "client.profile-name", "client.role-arn"),
    *("encryption.pins", "encryption.kms-type", "kms.endpoint", "sts.endpoint", "vault.url", "azure.keyvault.url", "gcp.kms.endpoint"),
]
URLS_WITH_CREDENTIALS = [
    "https://u:p@kms.example",
    "https://token@kms.example/path",
    "postgresql+psycopg2://u:p@host/db",
    "postgresql://host/db?user=u&password=p",
    "redis://:p@host",
    "mysql://u:p/w@host/db",
    "thrift://a:9083,thrift://u:p@b:9083",
    "u:p@proxy:3128",
    "https://account.blob.core.windows.net/c?sv=2021&sig=abc",
    "https://h/?X-Amz-Signature=abc",
    "jdbc:postgresql://h/db?sslpassword=x",
]
URLS_WITHOUT = [
    "https://kms.example:8443/path?region=eu",
    "sqlite:////tmp/catalog.db",
    "abfss://container@account.dfs.core.windows.net/warehouse",
    "s3://bucket/warehouse",
    "arn:aws:kms:eu-west-1:123456789012:alias/orders",
    "thrift://a:9083,thrift://b:9083",
    "postgresql://user@host/db",
    "plain",
    "",
]


def _setting(name: str, default: str) -> str | None:
    return CLUSTER.get(name, default)


@pytest.mark.parametrize("value", URLS_WITH_CREDENTIALS)
def test_a_credential_in_a_url_is_sensitive_wherever_it_goes(value: str) -> None:
    assert names.is_sensitive("kms.endpoint", value)
    with pytest.raises(ConfigurationError, match=r"kms\.endpoint"):
        check_credentials_stay_private({"kms.endpoint": value}, _setting)
    with pytest.raises(ConfigurationError, match="credential"):
        SourceOptions.of({"table": "c.db.t", "catalog.uri": value})


@pytest.mark.parametrize("value", URLS_WITHOUT)
def test_other_urls_are_not(value: str) -> None:
    assert not names.is_sensitive("kms.endpoint", value)
    check_credentials_stay_private({"kms.endpoint": value}, _setting)
    SourceOptions.of({"table": "c.db.t", "catalog.uri": value})


@pytest.mark.parametrize(
    "name",
    [
        *SENSITIVE,
        *(
            "S3.SECRET-ACCESS-KEY",
            "header.Authorization",
            "my.password",
            "db.passwd",
            "x.private-key",
            "x.api_key",
            "vendor.sas",
            "sas-key",
        ),
        *("adls.sas-token.account.dfs.core.windows.net", "client_secret", "some.pwd"),
    ],
)
def test_a_secret_is_one_for_executors_and_for_options_of_spark_alike(name: str) -> None:
    assert names.is_sensitive(name)
    with pytest.raises(ConfigurationError):
        check_credentials_stay_private({name: "x"}, _setting)
    with pytest.raises(ConfigurationError, match="credential"):
        SourceOptions.of({"table": "c.db.t", f"catalog.{name}": "x"})


@pytest.mark.parametrize(
    "name", ["kms.endpoint", "client.region", "vault.transit-mount", "gcs.oauth2.token-expires-at", "hive.sasl", "disaster"]
)
def test_what_is_no_secret_is_none(name: str) -> None:
    assert not names.is_sensitive(name, "x")


def test_a_secret_inside_a_nested_property_is_seen() -> None:
    assert names.is_sensitive("login", {"basic": {"username": "u", "password": "p"}})
    assert names.is_sensitive("ssl", {"client": {"cert": "https://u:p@h"}})
    assert not names.is_sensitive("ssl", {"cabundle": "/etc/ca.pem"})


def test_executors_get_what_a_kms_client_reads_and_nothing_else() -> None:
    own = {each.name: "x" for each in names.registered() if each.to_executors and not each.names_code and not each.name.endswith(".")}
    own[names.KMS_TYPE.name] = "aws"
    others = {each.name: "x" for each in names.registered() if not each.to_executors}
    others |= {"warehouse": "s3://b", "s3.secret-access-key": "x", "kms.unknown": "x", "client.unknown": "x", "adls.account-key": "x"}

    assert kms_properties({**own, **others, "client.assume-role.tags.team": "a"}) == {**own, "client.assume-role.tags.team": "a"}


def test_what_no_kms_client_reads_makes_no_other_client() -> None:
    first = {"encryption.kms-type": "memory", "kms.memory.name": "registry"}
    assert shared_kms({**first, "warehouse": "a", "adls.account-key": "k"}) is shared_kms({**first, "uri": "b"})
    assert shared_kms(first) is not shared_kms({**first, "kms.memory.name": "another"})


@pytest.mark.parametrize("name", [*(each.rstrip(".") + (".x" if each.endswith(".") else "") for each in CODE), "auth.custom"])
def test_a_table_names_no_code(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
        names.check_table_properties("db.t", {"owner": "me", name: "os.system"}, {})
    with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
        names.check_table_properties("db.t", {name: "os.system"}, {name: "mine.Class"})
    names.check_table_properties("db.t", {name: "mine.Class"}, {name: "mine.Class"})


@pytest.mark.parametrize("name", CODE)
def test_a_server_names_no_code_not_even_what_the_client_has(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
        names.taken_from_server("the server", {name: "mine.Class"}, {name: "mine.Class"})


@pytest.mark.parametrize("name", RECEIVERS)
def test_a_server_names_no_receiver(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")) as refused:
        names.taken_from_server("the server", {name: "http://stranger:hunter2@example"}, {name: "https://mine"})
    assert "hunter2" not in str(refused.value)
    with pytest.raises(ConfigurationError):
        names.taken_from_server("the server", {name: "http://stranger"}, {})


def test_a_server_may_repeat_what_the_client_says() -> None:
    sent = {"uri": "https://catalog/", "s3.endpoint": "http://minio:9000"}
    assert names.taken_from_server("the server", sent, {"uri": "https://catalog", "s3.endpoint": "http://minio:9000/"}) == {}


def test_a_server_vends_credentials_and_names_its_prefix() -> None:
    sent = {
        "prefix": "wh",
        "s3.access-key-id": "a",
        "s3.secret-access-key": "b",
        "s3.session-token": "c",
        "client.region": "eu-west-1",
        "gcs.oauth2.token": "d",
        "adls.sas-token.account.dfs.core.windows.net": "e",
        "adls.token": "f",
    }
    assert names.taken_from_server("the server", {**sent, "io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "clients": "4"}, {}) == sent


@pytest.mark.parametrize("region", ["evil.example/", "x.evil.example#", "eu west", "", "a" * 65, "eu-west-1\n"])
def test_a_region_that_would_be_another_host_is_refused(region: str) -> None:
    for name in ("client.region", "s3.region"):
        with pytest.raises(ConfigurationError, match="region"):
            names.taken_from_server("the server", {name: region}, {})


FROM_SERVERS: Final = [each.name for each in names.registered() if each.from_server]
ANY_NAME: Final = st.one_of(st.sampled_from([each.name for each in names.registered()]), st.text())


@given(
    sent=st.one_of(
        st.dictionaries(ANY_NAME, st.one_of(st.text(), st.none())),
        # Of these the server's answer may have as many as it likes: others mostly refuse the whole of it.
        st.dictionaries(
            st.one_of(st.sampled_from(FROM_SERVERS), st.text(min_size=1)), st.sampled_from(["a", "5", "eu-west-1"]), min_size=1
        ),
    )
)
def test_whatever_a_server_sends_only_allowed_names_are_taken(sent: dict[str, str | None]) -> None:
    try:
        taken = names.taken_from_server("the server", sent, {"uri": "https://mine"})
    except ConfigurationError:
        return
    for name in taken:
        known = names.property_named(name)
        assert known is not None
        assert known.from_server
        assert not known.names_code


def test_no_other_module_lists_names_of_secrets_or_prefixes_of_properties() -> None:
    """The registry decides alone: no other module has a collection of marks or prefixes by which it would decide again."""
    marks = {"secret", "token", "password", "credential", "kms.", "sts.", "client.", "vault.", "adls.", "azure.keyvault."}
    found = []
    for source in [*(REPOSITORY / "tablecrypt").rglob("*.py"), *(REPOSITORY / "catalog").rglob("*.py")]:
        if source == REPOSITORY / "tablecrypt" / "properties.py":
            continue
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Tuple | ast.List | ast.Set):
                texts = {each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)}
                if len(texts & marks) > 1:
                    found.append(f"{source.relative_to(REPOSITORY)}:{node.lineno}")
    assert found == []


@pytest.mark.parametrize("value", ["", "-1", "1.5", "1_000", " 1", "1\n", "١", "9" * 19, None])
def test_a_property_that_is_a_number_takes_nothing_else(value: str | None) -> None:
    for each in (names.DATA_KEY_LENGTH, names.KMS_CACHE_TTL_MS, names.KMS_RETRY_BUDGET_MS):
        with pytest.raises(ConfigurationError, match=rf"{each.name} is .*; it must be a whole number"):
            each.whole_number({each.name: value})


def test_every_default_that_is_a_number_is_one() -> None:
    assert names.KMS_CACHE_TTL_MS.whole_number({}) == 3_600_000
    assert names.KMS_CACHE_TTL_MS.whole_number({"encryption.kms.cache-ttl-ms": "0"}) == 0
    assert names.DATA_KEY_LENGTH.whole_number({}) == 16
    assert names.KMS_CACHE_MAX_KEYS.whole_number({}) == 1000
    assert {each.name for each in names.registered() if not each.doc} == set()
    listed = [each.name for each in names.registered()]
    assert len(listed) == len(set(listed))


UNSENDABLE: Final = ("a-secret\n", "a-secret\r\nX-Other: 1", " a-secret", "a-secret ", "a\0secret", "a-secret\u20ac")


@pytest.mark.parametrize("value", UNSENDABLE)
@pytest.mark.parametrize("name", ["token", "header.Authorization", "vault.token", "client.access-key-id", "client.session-token"])
def test_a_credential_that_no_header_can_hold_is_refused_and_not_shown(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match="no HTTP header can hold") as refused:
        names.check_own_properties({name: value}, "catalog")

    assert "secret" not in "".join(traceback.format_exception(refused.value)).replace("a credential", "")


def test_a_credential_that_a_header_can_hold_is_taken_and_a_table_may_call_its_property_so() -> None:
    for value in ("eyJhbGciOi.J9-_+/=", "Basic dXNlcjpwYXNz", "a", "Gr\u00fc\u00dfe"):
        names.check_own_properties({"token": value, "header.Authorization": value, "vault.token": value}, "catalog")
    names.check_own_properties({"token": "", "header.Authorization": ""}, "catalog")
    names.check_own_properties({"token": " of a table\n"}, "table")
