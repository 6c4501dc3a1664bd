"""Encrypted ORC between stock Spark, our bridge in front of AWS KMS, and our own reader and writer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from tablecrypt import orc
from tablecrypt.errors import ConfigurationError, KeyNotFoundError, KmsAccessDeniedError, KmsUnavailableError
from tablecrypt.hadoop_kms import HadoopKmsKeys
from tablecrypt.hadoop_kms.master_keys import roll_key
from tablecrypt.kms.factory import load_kms
from tablecrypt.kms.resilient import RetryPolicy
from tests.support.aws import AwsServer
from tests.support.certificates import PASSWORD, Authority
from tests.support.hadoop_kms import Bridge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]

PROVIDER: Final = "hadoop.security.key.provider.path"
SCHEMA: Final = "id int, ssn string, mail string, born date, home struct<zip:string,street:string>, tags array<string>"
SSN: Final = "078-05-1120-canary"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def kms_bridge(aws: AwsServer, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """One bridge for the whole module: ORC keeps its provider for the life of the JVM."""
    with Bridge(tmp_path_factory.mktemp("bridge"), load_kms(aws.kms_properties), "alias/orders", {"pii": 16, "big": 32}) as bridge:
        token = bridge.allow("etl", "pii", "big")
        configuration = _hadoop(spark)
        configuration.set(PROVIDER, bridge.provider_path(token))
        yield bridge
        configuration.unset(PROVIDER)


@pytest.fixture
def bridge(kms_bridge: Bridge) -> Iterator[Bridge]:
    """The bridge, where the session's user may use both keys."""
    with kms_bridge.restored() as restored:
        yield restored


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    import datetime as dt

    values = [
        (1, SSN, "a@example.org", dt.date(1990, 5, 6), ("12345", "Main"), ["x", "y"]),
        (2, None, "b@example.org", None, None, None),
        (3, "3", None, dt.date(2001, 1, 2), (None, "Side"), []),
    ]
    return spark.createDataFrame(values, SCHEMA).coalesce(1)


def _hadoop(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext
    return context._jsc.hadoopConfiguration()


def _deny(bridge: Bridge, *, masks: bool) -> None:
    """Take the key pii from the session's user."""
    text = bridge.allow_file.read_text().replace("['pii', 'big']", "['big']")
    bridge.allow_file.write_text(text.replace("masks = []", "masks = ['pii']") if masks else text)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.orc"))


def _sorted(df: DataFrame) -> list[Any]:
    return sorted(df.collect(), key=lambda row: row["id"])


def _remote(bridge: Bridge) -> HadoopKmsKeys:
    return HadoopKmsKeys(bridge.provider_path(bridge.tokens["etl"]), retry=RetryPolicy(budget_seconds=0))


ENCRYPT: Final = {"pii": ["ssn", "home.zip", "tags._elem"], "big": ["born"]}
MASK: Final = {"ssn": "sha256", "born": "redact"}
PLAIN: Final = {"orc.encrypt": "pii:ssn,home.zip,tags._elem;big:born", "orc.mask": "sha256:ssn;redact:born"}


@pytest.fixture
def written(rows: DataFrame, bridge: Bridge, tmp_path: Path) -> Path:
    """A folder of files that Spark wrote with the options of ORC's documentation alone."""
    folder = tmp_path / "written"
    rows.write.options(**PLAIN).option("compression", "none").orc(str(folder))
    return folder


def test_orcs_own_options_write_ciphertext_that_the_authorised_read(spark: SparkSession, rows: DataFrame, written: Path) -> None:
    assert _sorted(spark.read.orc(str(written))) == _sorted(rows)
    content = b"".join(path.read_bytes() for path in _files(written))
    assert SSN.encode() not in content
    assert b"12345" not in content
    assert b"a@example.org" in content


def test_the_helper_makes_the_same_options(rows: DataFrame) -> None:
    import tablecrypt.spark as tcs

    assert tcs.orc_options(rows.schema, ENCRYPT, MASK) == PLAIN


def test_we_read_what_spark_wrote_with_the_keys_of_the_same_kms(rows: DataFrame, bridge: Bridge, written: Path) -> None:
    import tablecrypt.spark as tcs

    more = written.with_name("more")
    tcs.write_orc(rows, str(more), ENCRYPT, MASK)
    expected = rows.toArrow().to_pylist()
    for path in _files(written) + _files(more):
        for keys in (bridge.keys, _remote(bridge)):
            assert orc.read_table(path, keys=keys).to_pylist() == expected


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_spark_reads_what_we_wrote(spark: SparkSession, bridge: Bridge, tmp_path: Path, vectorized: str) -> None:
    import tablecrypt.spark as tcs

    table = pa.table({"id": pa.array(range(2000), pa.int32()), "ssn": [f"{n}-{SSN}" for n in range(2000)]})
    path = tmp_path / "ours.orc"
    orc.write_table(table, str(path), encrypt={"pii": ["ssn"]}, keys=_remote(bridge))
    spark.conf.set("spark.sql.orc.enableVectorizedReader", vectorized)
    try:
        read = tcs.read_orc(spark, str(path))
        assert [row.asDict() for row in _sorted(read)] == table.to_pylist()
        assert read.where(f"ssn = '7-{SSN}'").count() == 1
    finally:
        spark.conf.unset("spark.sql.orc.enableVectorizedReader")


def test_a_denied_read_is_an_error_with_stock_options(spark: SparkSession, bridge: Bridge, written: Path) -> None:
    _deny(bridge, masks=False)
    with pytest.raises(Exception, match="user etl is not allowed to use key pii"):
        spark.read.orc(str(written)).collect()
    # Columns of another key, and plain ones, go on being read.
    assert spark.read.orc(str(written)).select("id", "born").count() == 3


def test_masks_are_shown_where_the_allow_list_says_so(spark: SparkSession, bridge: Bridge, written: Path) -> None:
    _deny(bridge, masks=True)
    masked = _sorted(spark.read.orc(str(written)))
    assert [row.ssn is None for row in masked] == [False, True, False]
    assert len(masked[0].ssn) == 64
    assert (masked[0].home.zip, masked[0].home.street, masked[0].mail) == (None, "Main", "a@example.org")
    assert masked[0].born.year == 1990


def test_read_orc_shows_masks_only_when_asked(spark: SparkSession, bridge: Bridge, written: Path) -> None:
    import tablecrypt.spark as tcs

    _deny(bridge, masks=True)
    with pytest.raises(Exception, match="no right to the key pii@"):
        tcs.read_orc(spark, str(written)).collect()
    assert _sorted(tcs.read_orc(spark, str(written), masked=True)) == _sorted(spark.read.orc(str(written)))


def test_a_kms_that_is_not_there_is_an_error_and_not_masks(spark: SparkSession, rows: DataFrame, bridge: Bridge, written: Path) -> None:
    import tablecrypt.spark as tcs

    bridge.down = True
    # What ORC does without help.
    assert [row.ssn for row in _sorted(spark.read.orc(str(written)))] != [row.ssn for row in _sorted(rows)]
    for masked in (False, True):
        with pytest.raises(Exception, match="the KMS did not open a key under pii@"):
            tcs.read_orc(spark, str(written), masked=masked).collect()
    with pytest.raises(KmsUnavailableError):
        tcs.write_orc(rows, str(written.with_name("never")), ENCRYPT)
    assert not written.with_name("never").exists()


def test_a_kms_that_fails_behind_the_bridge_is_an_error_with_stock_options(spark: SparkSession, bridge: Bridge, written: Path) -> None:
    bridge.allow_file.write_text("[users")
    with pytest.raises(Exception, match="this server cannot decrypt the key"):
        spark.read.orc(str(written)).collect()


def test_a_rolled_key_is_for_new_files_and_old_ones_still_open(
    aws: AwsServer, spark: SparkSession, rows: DataFrame, bridge: Bridge, written: Path
) -> None:
    import tablecrypt.spark as tcs

    version = roll_key(bridge.key_file, load_kms(aws.kms_properties), "pii", 9)
    tcs.write_orc(rows, str(written), ENCRYPT, mode="append")
    assert tcs.read_orc(spark, str(written)).count() == 6
    newest = bridge.keys.current_version("pii")
    assert newest.version == version
    assert all(row.ssn in {SSN, None, "3"} for row in tcs.read_orc(spark, str(written)).collect())


def test_write_orc_takes_partitions_and_modes(spark: SparkSession, rows: DataFrame, bridge: Bridge, tmp_path: Path) -> None:
    import tablecrypt.spark as tcs

    folder = str(tmp_path / "partitioned")
    for mode in ("overwrite", "append", "ignore"):
        tcs.write_orc(rows, folder, {"pii": ["ssn"]}, mode=mode, partition_by=["id"], options={"orc.bloom.filter.columns": "mail"})
    assert spark.read.orc(folder).groupBy("id").count().where("count = 2").count() == 3
    # Files of other partitions are not this write's affair, plain ones included.
    rows.where("id = 3").write.mode("overwrite").partitionBy("id").orc(folder + "-mixed")
    dynamic = {"partitionOverwriteMode": "dynamic"}
    tcs.write_orc(rows.where("id < 3"), folder + "-mixed", {"pii": ["ssn"]}, mode="overwrite", partition_by=["id"], options=dynamic)
    assert spark.read.orc(folder + "-mixed").count() == 3
    with pytest.raises(ConfigurationError, match="paths of a partitioned write"):
        tcs.write_orc(rows, folder, {"pii": ["ssn"]}, mode="append", partition_by=["ssn"])
    with pytest.raises(ConfigurationError, match="unencrypted bloom filter"):
        tcs.write_orc(rows, folder, {"pii": ["ssn"]}, mode="append", options={"orc.bloom.filter.columns": "ssn"})
    with pytest.raises(ConfigurationError, match="comes from the arguments"):
        tcs.write_orc(rows, folder, {"pii": ["ssn"]}, options={"orc.encrypt": "pii:mail"})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("spark.sql.orc.impl", "hive", r"spark\.sql\.orc\.impl=hive writes plaintext"),
        ("orc.bloom.filter.columns", "ssn", "unencrypted bloom filter"),
    ],
)
def test_settings_of_the_session_that_would_leak_are_refused(
    spark: SparkSession, rows: DataFrame, bridge: Bridge, tmp_path: Path, name: str, value: str, said: str
) -> None:
    import tablecrypt.spark as tcs

    spark.conf.set(name, value)
    try:
        with pytest.raises(ConfigurationError, match=said):
            tcs.write_orc(rows, str(tmp_path / "never"), {"pii": ["ssn"]})
    finally:
        spark.conf.unset(name)
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (None, "no KMS is named"),
        ("jceks://file/tmp/keys.jceks", "the one kind that ORC supports"),
        ("kms://http@kms.example.org:9600/token/s3cr3t/kms", r"plain HTTP on kms\.example\.org"),
    ],
)
def test_a_session_without_a_fit_kms_is_refused(spark: SparkSession, bridge: Bridge, path: str | None, said: str) -> None:
    import tablecrypt.spark as tcs

    configuration = _hadoop(spark)
    before = configuration.get(PROVIDER)
    try:
        if path is None:
            configuration.unset(PROVIDER)
        else:
            configuration.set(PROVIDER, path)
        with pytest.raises(ConfigurationError, match=said) as caught:
            tcs.check_orc_session(spark)
    finally:
        configuration.set(PROVIDER, before)
    assert "s3cr3t" not in str(caught.value)


def test_keys_that_the_kms_does_not_give_are_told_apart(spark: SparkSession, bridge: Bridge) -> None:
    import tablecrypt.spark as tcs

    tcs.check_orc_session(spark, ["pii", "big"])
    bridge.allow_file.write_text(bridge.allow_file.read_text().replace("'big'", "'gone'"))
    with pytest.raises(KeyNotFoundError, match="has no key 'gone'"):
        tcs.check_orc_session(spark, ["gone"])
    with pytest.raises(KmsAccessDeniedError, match="refuses the key 'big'"):
        tcs.check_orc_session(spark, ["big"])
    bridge.down = True
    with pytest.raises(KmsUnavailableError) as caught:
        tcs.check_orc_session(spark, ["pii"])
    assert bridge.tokens["etl"] not in str(caught.value)


def test_a_table_with_options_encrypts_and_one_with_properties_is_refused(spark: SparkSession, bridge: Bridge, tmp_path: Path) -> None:
    import tablecrypt.spark as tcs

    number = next(_numbers)
    names = {kind: f"orc_{kind}_{number}" for kind in ("options", "properties", "nothing", "parquet")}
    clauses = {
        "options": "USING orc OPTIONS ('orc.encrypt' = 'pii:ssn')",
        "properties": "USING orc TBLPROPERTIES ('orc.encrypt' = 'pii:ssn')",
        "nothing": "USING orc",
        "parquet": "USING parquet OPTIONS ('orc.encrypt' = 'pii:ssn')",
    }
    for kind, name in names.items():
        spark.sql(f"CREATE TABLE {name} (id int, ssn string) {clauses[kind]} LOCATION '{tmp_path / kind}'")
        spark.sql(f"INSERT INTO {name} VALUES (1, '{SSN}')")
    try:
        tcs.check_orc_table(spark, names["options"])
        for kind, said in (("properties", "in its TBLPROPERTIES"), ("nothing", "no option"), ("parquet", "only USING orc encrypts")):
            with pytest.raises(ConfigurationError, match=said):
                tcs.check_orc_table(spark, f"default.{names[kind]}")
        [encrypted] = _files(tmp_path / "options")
        assert orc.read_table(encrypted, keys=bridge.keys).to_pylist() == [{"id": 1, "ssn": SSN}]
        [plaintext] = _files(tmp_path / "properties")
        assert SSN.encode() in plaintext.read_bytes()
    finally:
        for name in names.values():
            spark.sql(f"DROP TABLE {name}")


def test_hadoops_own_client_speaks_with_the_bridge(spark: SparkSession, bridge: Bridge) -> None:
    context: Any = spark.sparkContext
    jvm = context._jvm
    keys = jvm.org.apache.hadoop.crypto.key.KeyProviderFactory.getProviders(_hadoop(spark)).get(0)
    assert sorted(keys.getKeys()) == ["big", "pii"]
    assert keys.getMetadata("big").getBitLength() == 256
    assert keys.getCurrentKey("big").getVersionName() == "big@0"
    assert keys.getCurrentKey("big").getMaterial() is None
    assert keys.getKeyVersion("big@0").getMaterial() is None
    extension = jvm.org.apache.hadoop.crypto.key.KeyProviderCryptoExtension.createKeyProviderCryptoExtension(keys)
    generated = extension.generateEncryptedKey("big")
    opened = bytes(extension.decryptEncryptedKey(generated).getMaterial())
    encrypted = bytes(generated.getEncryptedKeyVersion().getMaterial())
    assert opened == bridge.keys.decrypt_local_key(bridge.keys.current_version("big"), encrypted).reveal()
    with pytest.raises(Exception, match="keys are made with tablecrypt hadoop-kms-key"):
        keys.deleteKey("big")


def test_hadoops_own_client_proves_its_user_by_a_certificate(aws: AwsServer, spark: SparkSession, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, private_key = authority.issue("server")
    authority.issue("etl.example")
    authority.issue("stranger.example")
    tls: dict[str, Any] = {"certificate": certificate, "private_key": private_key, "client_ca": authority.path}
    with Bridge(tmp_path, load_kms(aws.kms_properties), "alias/orders", {"pii": 16}, **tls) as bridge:
        bridge.allow("etl", "pii", certificates=("etl.example",))
        keys = _with_certificate(spark, bridge, authority, "etl.example")
        assert list(keys.getKeys()) == ["pii"]
        stranger = _with_certificate(spark, bridge, authority, "stranger.example")
        with pytest.raises(Exception, match="does not prove that it comes from a user"):
            stranger.getKeys()


def test_hadoops_own_client_gives_its_name_where_names_are_believed(aws: AwsServer, spark: SparkSession, tmp_path: Path) -> None:
    context: Any = spark.sparkContext
    jvm = context._jvm
    with Bridge(tmp_path, load_kms(aws.kms_properties), "alias/orders", {"pii": 16}, believe_names=True) as bridge:
        configuration = jvm.org.apache.hadoop.conf.Configuration(False)
        configuration.set(PROVIDER, bridge.provider_path())
        keys = jvm.org.apache.hadoop.crypto.key.KeyProviderFactory.getProviders(configuration).get(0)
        with pytest.raises(Exception, match="does not prove that it comes from a user"):
            keys.getKeys()
        bridge.allow(jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().getShortUserName(), "pii")
        assert list(keys.getKeys()) == ["pii"]


def _with_certificate(spark: SparkSession, bridge: Bridge, authority: Authority, name: str) -> Any:
    context: Any = spark.sparkContext
    jvm = context._jvm
    configuration = jvm.org.apache.hadoop.conf.Configuration(False)
    settings = {
        PROVIDER: bridge.provider_path(),
        "hadoop.ssl.require.client.cert": "true",
        "hadoop.ssl.hostname.verifier": "DEFAULT",
        "ssl.client.keystore.type": "PKCS12",
        "ssl.client.keystore.location": str(authority.key_store(name)),
        "ssl.client.keystore.password": PASSWORD,
        "ssl.client.truststore.type": "PKCS12",
        "ssl.client.truststore.location": str(authority.trust_store()),
        "ssl.client.truststore.password": PASSWORD,
    }
    for each, value in settings.items():
        configuration.set(each, value)
    return jvm.org.apache.hadoop.crypto.key.KeyProviderFactory.getProviders(configuration).get(0)
