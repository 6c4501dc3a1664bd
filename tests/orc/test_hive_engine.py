"""Encrypted ORC between Hive 4.1, our bridge in front of AWS KMS, and our own reader and writer."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from tablecrypt import orc
from tablecrypt.errors import ConfigurationError, KeyNotFoundError, PlaintextRefusedError
from tablecrypt.hadoop_kms import HadoopKmsKeys
from tablecrypt.kms.factory import load_kms
from tablecrypt.kms.resilient import RetryPolicy
from tablecrypt.orc.hive_jar import main, write_hive_jar
from tests.support.aws import AwsServer
from tests.support.hadoop_kms import Bridge
from tests.support.hive_engine import HiveEngine, hive_class_path
from tests.support.java import JavaError

pytestmark = [pytest.mark.java, pytest.mark.slow]

COLUMNS: Final = "id int, ssn string, mail string, pay int, home struct<zip:string,street:string>, tags array<string>"
PROPERTIES: Final = "'orc.encrypt'='pii:ssn,pay,home.zip,tags;big:mail', 'orc.mask'='sha256:mail;redact:pay'"
ENCRYPTED: Final = """row format serde 'tablecrypt.orc.EncryptedOrcSerde'
    stored as inputformat 'tablecrypt.orc.EncryptedOrcInputFormat' outputformat 'tablecrypt.orc.EncryptedOrcOutputFormat'"""
SSN: Final = "078-05-1120"
VALUES: Final = f"""select 1, '{SSN}', 'a@example.org', 1234, named_struct('zip', '12345', 'street', 'Main'), array('x', 'y')
    union all select 2, '219-09-9999', cast(null as string), 77, named_struct('zip', cast(null as string), 'street', 'Side'), array('z')"""
ROWS: Final = pa.table(
    {
        "id": pa.array([1, 2], pa.int32()),
        "ssn": [SSN, "219-09-9999"],
        "mail": ["a@example.org", None],
        "pay": pa.array([1234, 77], pa.int32()),
        "home": [{"zip": "12345", "street": "Main"}, {"zip": None, "street": "Side"}],
        "tags": [["x", "y"], ["z"]],
    }
)
AS_TEXT: Final = [
    ("1", SSN, "a@example.org", "1234", '{"zip":"12345","street":"Main"}', '["x","y"]'),
    ("2", "219-09-9999", "NULL", "77", '{"zip":null,"street":"Side"}', '["z"]'),
]


@pytest.fixture(scope="module")
def kms_bridge(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    client = load_kms(aws.kms_properties)
    with Bridge(tmp_path_factory.mktemp("bridge"), client, "alias/orders", {"pii": 16, "big": 32}, seconds=120) as bridge:
        bridge.allow("etl", "pii", "big")
        yield bridge


@pytest.fixture
def bridge(kms_bridge: Bridge) -> Iterator[Bridge]:
    """The bridge, where Hive's user may use both keys."""
    with kms_bridge.restored() as restored:
        yield restored


@pytest.fixture(scope="module")
def hive(java_runtime: None, kms_bridge: Bridge, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveEngine]:
    """Hive with our jar on its class path, and otherwise as it comes."""
    folder = tmp_path_factory.mktemp("hive")
    jar = folder / "tablecrypt-hive.jar"
    main([str(jar), hive_class_path()])
    hive = HiveEngine(folder, {"hadoop.security.key.provider.path": kms_bridge.provider_path(kms_bridge.tokens["etl"])}, [jar])
    yield hive
    hive.stop()


@pytest.fixture(scope="module")
def written(hive: HiveEngine) -> Path:
    """The file of a table `people` that Hive filled."""
    hive.sql(f"create table people ({COLUMNS}) {ENCRYPTED} tblproperties ({PROPERTIES})")
    hive.sql(f"insert into people {VALUES}")
    (path,) = hive.files("people")
    return path


@pytest.fixture
def ours(hive: HiveEngine, bridge: Bridge, tmp_path: Path) -> Iterator[str]:
    """A table of Hive's own ORC classes over a file that we wrote."""
    encrypt = {"pii": ["ssn", "pay", "home.zip", "tags"], "big": ["mail"]}
    orc.write_table(ROWS, tmp_path / "people.orc", encrypt, _keys(bridge), {"mail": "sha256", "pay": "redact"})
    hive.sql(f"create external table ours ({COLUMNS}) stored as orc location 'file://{tmp_path}'")
    yield "ours"
    hive.sql("drop table ours")


def _keys(bridge: Bridge) -> HadoopKmsKeys:
    return HadoopKmsKeys(bridge.provider_path(bridge.tokens["etl"]), retry=RetryPolicy(budget_seconds=0))


def _deny(bridge: Bridge, *, masks: bool) -> None:
    """Take the key pii from Hive's user."""
    text = bridge.allow_file.read_text().replace("['pii', 'big']", "['big']")
    bridge.allow_file.write_text(text.replace("masks = []", "masks = ['pii']") if masks else text)


def test_what_hive_writes_is_ciphertext_that_we_read(written: Path, bridge: Bridge) -> None:
    content = written.read_bytes()
    for value in (SSN, "a@example.org", "12345"):
        assert value.encode() not in content
    assert b"Main" in content
    assert orc.read_table(written, _keys(bridge)).to_pylist() == ROWS.to_pylist()
    verified = orc.verify(written, _keys(bridge))
    assert (verified.opened, verified.exposed) == (("ssn", "mail", "pay", "home.zip", "tags"), ())


def test_masks_that_hive_writes_are_those_of_the_table(written: Path) -> None:
    masked = orc.read_table(written, masked=True)
    assert masked["ssn"].to_pylist() == [None, None]
    assert masked["pay"].to_pylist() == [9999, 99]
    assert [len(hashed or "") for hashed in masked["mail"].to_pylist()] == [64, 0]
    with pytest.raises(KeyNotFoundError):
        orc.read_table(written)


@pytest.mark.usefixtures("written")
def test_hive_reads_what_it_wrote(hive: HiveEngine, bridge: Bridge) -> None:
    assert hive.sql("select * from people order by id") == AS_TEXT
    _deny(bridge, masks=False)
    with pytest.raises(JavaError, match="etl is not allowed to use key pii"):
        hive.sql("select * from people")
    assert hive.sql("select id, mail from people") == [("1", "a@example.org"), ("2", "NULL")]


def test_hive_reads_what_we_write_and_is_refused_what_it_has_no_right_to(hive: HiveEngine, ours: str, bridge: Bridge) -> None:
    assert hive.sql(f"select * from {ours}") == AS_TEXT
    assert hive.sql(f"select count(*), max(pay), min(ssn) from {ours}") == [("2", "1234", SSN)]
    _deny(bridge, masks=False)
    with pytest.raises(JavaError, match="etl is not allowed to use key pii"):
        hive.sql(f"select * from {ours}")
    with pytest.raises(JavaError, match="MapRedTask"):
        hive.sql(f"select max(pay) from {ours}")
    _deny(bridge, masks=True)
    assert [row[:4] for row in hive.sql(f"select * from {ours}")] == [("1", "NULL", "a@example.org", "9999"), ("2", "NULL", "NULL", "99")]


@pytest.mark.usefixtures("written")
def test_a_kms_that_is_down_is_an_error_with_our_provider_and_masks_with_orcs(hive: HiveEngine, ours: str, bridge: Bridge) -> None:
    bridge.down = True
    assert [row[1] for row in hive.sql(f"select * from {ours}")] == ["NULL", "NULL"]
    with pytest.raises(JavaError):
        hive.sql(f"insert into people {VALUES}")
    hive.set("orc.key.provider", "tablecrypt")
    try:
        with pytest.raises(JavaError, match="the KMS did not open a key") as failed:
            hive.sql(f"select * from {ours}")
        assert bridge.tokens["etl"] not in str(failed.value)
        bridge.down = False
        assert hive.sql(f"select * from {ours}") == AS_TEXT
    finally:
        hive.set("orc.key.provider", "hadoop")


def test_partitions_overwriting_and_inserts_into_them_are_encrypted(hive: HiveEngine, bridge: Bridge) -> None:
    hive.sql(f"create table parts (id int, ssn string) partitioned by (day string) {ENCRYPTED} tblproperties ('orc.encrypt'='pii:ssn')")
    hive.sql(f"insert into parts partition (day) select 1, '{SSN}', 'a' union all select 2, '{SSN}', 'b'")
    hive.sql(f"insert overwrite table parts partition (day='a') select 3, '{SSN}'")
    read = [orc.read_table(path, _keys(bridge)).to_pylist() for path in hive.files("parts")]
    assert read == [[{"id": 3, "ssn": SSN}], [{"id": 2, "ssn": SSN}]]


def test_hive_by_itself_writes_plaintext_which_we_do_not_take_for_encrypted(hive: HiveEngine, bridge: Bridge) -> None:
    hive.sql("create table stock (id int, ssn string) stored as orc tblproperties ('orc.encrypt'='pii:ssn')")
    hive.sql(f"insert into stock values (1, '{SSN}')")
    (path,) = hive.files("stock")
    assert SSN.encode() in path.read_bytes()
    with pytest.raises(PlaintextRefusedError):
        orc.read_table(path, _keys(bridge))


def test_hive_by_itself_loses_rows_that_a_filter_wants_and_our_input_format_none(hive: HiveEngine, ours: str, tmp_path: Path) -> None:
    """Hive keeps footers in memory; with those it leaves stripes out by the statistics of their masks."""
    wanted = "select id from {} where pay = 77"
    hive.sql(f"create external table safe ({COLUMNS}) {ENCRYPTED} location 'file://{tmp_path}'")
    try:
        assert hive.sql(f"select id from {ours}") == [("1",), ("2",)]
        hive.sql(wanted.format(ours))
        assert hive.sql(wanted.format(ours)) == []
        assert hive.sql(wanted.format("safe")) == [("2",)]
        hive.set("hive.exec.orc.split.strategy", "BI")
        assert hive.sql(wanted.format(ours)) == [("2",)]
    finally:
        hive.set("hive.exec.orc.split.strategy", "HYBRID")
        hive.sql("drop table safe")


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ("'owner'='etl'", "the table has no property orc.encrypt that names a column"),
        ("'orc.encrypt'='pii:ssn', 'orc.mask'='redact:id,ssn'", "orc.mask names [id] and orc.encrypt does not"),
        ("'orc.encrypt'='pii:ssn', 'orc.bloom.filter.columns'='ssn'", "bloom filters of encrypted columns in the clear"),
        ("'orc.encrypt'='pii:nope'", "Field nope not found"),
        ("'orc.encrypt'='gone:ssn'", "etl is not allowed to use key gone"),
    ],
)
def test_what_would_not_be_encrypted_is_not_written(hive: HiveEngine, properties: str, said: str) -> None:
    hive.sql(f"create table refused (id int, ssn string) {ENCRYPTED} tblproperties ({properties})")
    try:
        with pytest.raises(JavaError, match="MapRedTask"):
            hive.sql(f"insert into refused values (1, '{SSN}')")
        assert hive.files("refused") == []
    finally:
        hive.sql("drop table refused")
    assert said in hive.log()


def test_a_jar_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    target = tmp_path / "a.jar"
    with pytest.raises(ConfigurationError, match="cannot be run"):
        write_hive_jar(target, "", javac=str(tmp_path / "javac"))
    with pytest.raises(ConfigurationError, match=r"do not compile with these jars(?s:.*)package org\.apache"):
        write_hive_jar(target, str(tmp_path))
    assert not target.exists()


def test_the_jar_names_its_key_provider_to_orc(tmp_path: Path, java_runtime: None) -> None:
    write_hive_jar(tmp_path / "a.jar", hive_class_path())
    with zipfile.ZipFile(tmp_path / "a.jar") as jar:
        assert jar.read("META-INF/services/org.apache.orc.impl.KeyProvider$Factory") == b"tablecrypt.orc.CheckedKeysFactory\n"
        assert "tablecrypt/orc/CheckedKeysFactory.class" in jar.namelist()
