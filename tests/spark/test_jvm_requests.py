"""Requests of executors to the driver's JVM: one form in Python and Java, and nothing else is granted."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError
from tablecrypt.spark.shared.coordinator import KIND, REQUESTS, FileLocations, LocationRequest
from tablecrypt.spark.shared.install import jvm_side
from tablecrypt.spark.shared.sources import PACKAGE, spark_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA: Final = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))
UNPARTITIONED: Final = PartitionSpec()
BY_TEXT: Final = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "text"))
UNIQUE: Final = "0f0e0d0c-0b0a-0908-0706-050403020100"
FIELDS: Final[dict[str, Any]] = {KIND: "location", "task": 3, "attempt": 17, "unique": UNIQUE, "number": 0, "partition": ""}
LOCATION: Final = f"file:///lake/data/00003-17-{UNIQUE}-00000.parquet"
PARTITION: Final = base64.b64encode(b"\x01\x00\x00\x00\x06a/../b").decode()

MALFORMED: Final = {
    "no JSON": "location 3 17",
    "nothing": "",
    "no object": "[]",
    "text after it": json.dumps(FIELDS) + " {}",
    "a field twice": json.dumps(FIELDS)[:-1] + ', "task": 4}',
    "a field too many": json.dumps(FIELDS | {"path": "/etc"}),
    **{f"no {name}": json.dumps({key: value for key, value in FIELDS.items() if key != name}) for name in FIELDS},
    **{f"{name} of another type": json.dumps(FIELDS | {name: [value]}) for name, value in FIELDS.items()},
    "a number as text": json.dumps(FIELDS | {"task": "3"}),
    "a fraction": json.dumps(FIELDS | {"attempt": 17.0}),
    "a truth value": json.dumps(FIELDS | {"number": True}),
    "a task beyond 32 bits": json.dumps(FIELDS | {"task": 2**31}),
    "an attempt beyond 64 bits": json.dumps(FIELDS | {"attempt": 2**63}),
    "a deep nest": "[" * 100_000,
    "an unknown request": json.dumps(FIELDS | {KIND: "lokation"}),
}
"""What both sides refuse."""
REFUSED_BY_PYTHON: Final = {
    "a negative number": json.dumps(FIELDS | {"number": -1}),
    "a path for a UUID": json.dumps(FIELDS | {"unique": "../../../etc/passwd"}),
    "a UUID in capitals": json.dumps(FIELDS | {"unique": UNIQUE.upper()}),
    "a UUID in braces": json.dumps(FIELDS | {"unique": f"{{{UNIQUE}}}"}),
    "no Base64": json.dumps(FIELDS | {"partition": "AA=A"}),
    "a request to finish": json.dumps({KIND: "finish", "task": 3, "attempt": 17}),
    "a request for a key": json.dumps({KIND: "key", "read": "r", "path": "p"}),
}


def metadata(spec: PartitionSpec = UNPARTITIONED) -> TableMetadata:
    return new_table_metadata(SCHEMA, spec, UNSORTED_SORT_ORDER, "file:///lake", {"format-version": "2"})


@given(
    task=st.integers(0, 2**31 - 1),
    attempt=st.integers(0, 2**63 - 1),
    unique=st.uuids().map(str),
    number=st.integers(0, 2**31 - 1),
    partition=st.binary(max_size=40),
)
def test_a_request_says_what_was_asked_for(task: int, attempt: int, unique: str, number: int, partition: bytes) -> None:
    fields = {KIND: "location", "task": task, "attempt": attempt, "unique": unique, "number": number}
    text = json.dumps(fields | {"partition": base64.b64encode(partition).decode()})

    assert LocationRequest.decode(text) == LocationRequest(task, attempt, unique, number, partition)


@pytest.mark.slow
@given(text=st.text() | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_other_text_is_a_format_error(text: str) -> None:
    with pytest.raises(FormatError, match="malformed"):
        LocationRequest.decode(text)


VALUES: Final = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40) | st.lists(st.integers(), max_size=2)


@given(name=st.sampled_from(sorted(FIELDS)), value=VALUES)
def test_a_changed_field_is_refused_or_means_what_it_says(name: str, value: Any) -> None:
    try:
        request = LocationRequest.decode(json.dumps(FIELDS | {name: value}))
    except FormatError:
        return
    assert name != KIND or value == "location"
    assert re.fullmatch(rf"\d{{5,}}-\d+-{UNIQUE}-\d{{5,}}\.parquet", request.file_name)


@pytest.mark.parametrize("text", [*MALFORMED.values(), *REFUSED_BY_PYTHON.values()], ids=[*MALFORMED, *REFUSED_BY_PYTHON])
def test_python_grants_nothing_for_a_malformed_request(text: str) -> None:
    locations = FileLocations(metadata())

    with pytest.raises(FormatError, match="malformed") as raised:
        locations.respond(text)

    assert "passwd" not in str(raised.value)
    with pytest.raises(AuthenticationError):
        locations.as_table_has_it(LOCATION, 3, 17)


def test_a_location_is_given_once_to_one_attempt() -> None:
    locations = FileLocations(metadata())

    assert locations.respond(json.dumps(FIELDS)) == LOCATION
    assert locations.as_table_has_it(LOCATION, 3, 17) == LOCATION
    for location, task, attempt in ((LOCATION, 3, 18), (LOCATION, 2, 17), (LOCATION + "x", 3, 17)):
        with pytest.raises(AuthenticationError, match="at a location that it was not given"):
            locations.as_table_has_it(location, task, attempt)
    with pytest.raises(ConfigurationError, match="it has to end with that name, once"):
        locations.respond(json.dumps(FIELDS))


def test_partition_values_are_checked_and_lead_to_no_place_that_shows_them() -> None:
    locations = FileLocations(metadata(BY_TEXT))

    assert locations.respond(json.dumps(FIELDS | {"partition": PARTITION})) == LOCATION
    with pytest.raises(FormatError, match="ends early"):
        locations.respond(json.dumps(FIELDS | {"partition": PARTITION[:8]}))


def test_java_has_the_names_that_python_documents() -> None:
    source = (resources.files("tablecrypt.spark.shared") / "java" / "Requests.java").read_text(encoding="utf-8")
    constants = dict(re.findall(r'static final String (\w+) = "(\w+)";', source))

    assert {name.lower(): value for name, value in constants.items()} == {
        "kind": KIND,
        **{name: name for kind, fields in REQUESTS.items() for name in (kind, *fields)},
    }


def test_java_reads_the_settings_that_python_gives() -> None:
    package = resources.files("tablecrypt.spark")
    setting = re.compile(r'"(tablecrypt\.(?!jvm)[a-z-]+)"')
    of_java = {name for text in spark_sources().texts.values() for name in setting.findall(text)}
    of_python = {
        name
        for each in ("shared/parquet_settings", "masked_columns", "sql/writes/commits")
        for name in setting.findall((package / f"{each}.py").read_text(encoding="utf-8"))
    }

    assert of_java - of_python == {"tablecrypt.endpoint", "tablecrypt.read"}, "Java tells these to Java"
    assert of_python <= of_java
    assert len(of_java) == 5


@pytest.fixture
def requests(spark: SparkSession) -> Callable[..., Any]:
    """Calls a static method of Requests.java."""
    loader = jvm_side(spark).endpoint.getClass().getClassLoader()
    methods = {method.getName(): method for method in loader.loadClass(f"{PACKAGE}.Requests").getMethods()}
    gateway: Any = spark.sparkContext._gateway

    def call(name: str, *arguments: Any) -> Any:
        values = gateway.new_array(gateway.jvm.java.lang.Object, len(arguments))
        for index, value in enumerate(arguments):
            values[index] = value
        return methods[name].invoke(None, values)

    return call


@pytest.mark.java
def test_what_java_writes_python_reads(requests: Callable[..., Any]) -> None:
    for partition in (b"", b"\x00", bytes(range(256))):
        text = requests("location", 2**31 - 1, 2**63 - 1, UNIQUE, 7, partition)

        assert LocationRequest.decode(text) == LocationRequest(2**31 - 1, 2**63 - 1, UNIQUE, 7, partition)
        assert list(json.loads(text)) == [KIND, *REQUESTS["location"]]
    for kind, arguments in {"key": ("r", "s3://a/ü.parquet"), "deletes": ("r", 3), "portable": ("r", 3), "finish": (3, 2**40)}.items():
        text = requests(kind, *arguments)
        assert json.loads(text) == {KIND: kind, **dict(zip(REQUESTS[kind], arguments, strict=True))}
        assert requests("parse", text).size() == len(REQUESTS[kind]) + 1


@pytest.mark.java
@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_java_refuses_a_malformed_request_without_showing_it(requests: Callable[..., Any], text: str) -> None:
    from py4j.protocol import Py4JJavaError

    with pytest.raises(Py4JJavaError) as raised:
        requests("parse", text)

    cause = raised.value.java_exception.getCause()
    assert (cause.getClass().getName(), cause.getMessage(), cause.getCause()) == ("java.io.IOException", "malformed request", None)


@contextmanager
def responding(coordinator: Any, locations: FileLocations) -> Iterator[None]:
    """Respond to what a coordinator hands on for as long as the block runs."""
    thread = threading.Thread(target=_respond_to_all, args=(coordinator, locations), daemon=True)
    thread.start()
    try:
        yield
    finally:
        coordinator.close()
        thread.join()


def _respond_to_all(coordinator: Any, locations: FileLocations) -> None:
    while (request := coordinator.next()) is not None:
        try:
            request.respond(locations.respond(request.text()).encode())
        except FormatError as error:
            request.refuse(f"{type(error).__name__}: {error}")


@pytest.mark.java
def test_an_executor_that_sends_something_else_gets_no_location_and_no_key(spark: SparkSession) -> None:
    from py4j.protocol import Py4JJavaError

    side, locations = jvm_side(spark), FileLocations(metadata())
    gateway: Any = spark.sparkContext._gateway
    arguments = gateway.new_array(gateway.jvm.java.lang.Object, 1)
    arguments[0] = "tablecrypt-write-attacked"
    loader = side.endpoint.getClass().getClassLoader()
    coordinator = loader.loadClass(f"{PACKAGE}.WriteCoordinator").getConstructors()[0].newInstance(arguments)

    def ask(endpoint: str, text: str) -> bytes:
        jvm: Any = spark.sparkContext._jvm
        env = jvm.org.apache.spark.SparkEnv.get()
        driver = jvm.org.apache.spark.util.RpcUtils.makeDriverRef(endpoint, env.conf(), env.rpcEnv())
        tag = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$")
        return bytes(driver.askSync(text, tag.apply(jvm.java.lang.Class.forName("[B"))))

    def refusal(endpoint: str, text: str) -> str:
        with pytest.raises(Py4JJavaError) as raised:
            ask(endpoint, text)
        return str(raised.value)

    with responding(coordinator, locations):
        for text in MALFORMED.values():
            assert "malformed request" in refusal("tablecrypt-write-attacked", text)
            assert "malformed request" in refusal(side.name, text)
        for kind in ("a path for a UUID", "a negative number", "no Base64", "a request for a key"):
            assert "FormatError" in refusal("tablecrypt-write-attacked", REFUSED_BY_PYTHON[kind])
        assert ask("tablecrypt-write-attacked", REFUSED_BY_PYTHON["a request to finish"]) == b""
        assert ask("tablecrypt-write-attacked", json.dumps(FIELDS)).decode() == LOCATION
        for request in (
            {KIND: "key", "read": "r", "path": "p"},
            {KIND: "deletes", "read": "r", "file": -1},
            {KIND: "portable", "read": "r", "file": 0},
        ):
            assert "the driver planned no file" in refusal(side.name, json.dumps(request))
        assert "malformed request" in refusal(side.name, json.dumps(FIELDS))
    assert refusal("tablecrypt-write-attacked", json.dumps(FIELDS | {"number": 1})), "a location was given after the write"
