"""Sessions whose processes talk in the clear: one warning, or a refusal where the catalog asks for it; and keys that Spark brings."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from tablecrypt.engines.job_keys import Role
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark import network
from tablecrypt.spark.broadcast_keys import BroadcastTicket, brings_keys_by_spark, issue_by_broadcast
from tablecrypt.spark.network import check_network, warn_of_open_network

CLUSTER = {"spark.master": "spark://host:7077"}
PRIVATE = CLUSTER | {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
REQUIRED = {"tablecrypt.spark.require-encrypted-rpc": "True"}


@pytest.fixture(autouse=True)
def nothing_said_yet() -> Iterator[None]:
    network._warn_once.cache_clear()
    yield
    network._warn_once.cache_clear()


@pytest.mark.parametrize("settings", [PRIVATE, {"spark.master": "local[4]"}])
def test_private_sessions_are_neither_warned_nor_refused(settings: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    warn_of_open_network(settings.get)
    check_network(REQUIRED, settings.get)

    assert not caplog.records


def test_an_open_session_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        warn_of_open_network(CLUSTER.get)

    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "spark.master=spark://host:7077" in record.getMessage()
    assert "set spark.authenticate and spark.network.crypto.enabled" in record.getMessage()
    assert "tablecrypt.spark.require-encrypted-rpc=true" in record.getMessage()


def test_an_open_session_is_refused_where_the_catalog_requires_it() -> None:
    check_network({}, CLUSTER.get)
    with pytest.raises(ConfigurationError, match=r"set spark\.authenticate and spark\.network\.crypto\.enabled"):
        check_network(REQUIRED, CLUSTER.get)
    with pytest.raises(ConfigurationError, match="sends rows and tasks over the network in the clear"):
        check_network(REQUIRED, (CLUSTER | {"spark.authenticate": "true"}).get)


def test_who_brings_keys_is_kms_or_spark() -> None:
    assert not brings_keys_by_spark({})
    assert brings_keys_by_spark({"tablecrypt.spark.executor-keys": "Spark"})
    with pytest.raises(ConfigurationError, match="is 'broker'; it must be kms or spark"):
        brings_keys_by_spark({"tablecrypt.spark.executor-keys": "broker"})


class Session:
    """As much of a session as the decision asks for."""

    def __init__(self, settings: dict[str, str], *, has_context: bool = True) -> None:
        self.conf = settings
        self.broadcasts: list[bytes] = []
        if has_context:
            self.sparkContext = self

    def getConf(self) -> dict[str, str]:
        return self.conf

    def broadcast(self, value: bytes) -> Any:
        self.broadcasts.append(value)
        return Reference()


class Reference:
    """A broadcast as a closure holds it: without its value."""


@pytest.mark.parametrize(
    ("session", "told"),
    [
        (Session(PRIVATE, has_context=False), "Spark Connect has no broadcasts"),
        (Session(CLUSTER | {"spark.io.encryption.enabled": "true"}), "job keys would travel in the clear"),
        (Session(PRIVATE), r"would lie on disk in the clear: set spark\.io\.encryption\.enabled"),
        (Session({"spark.master": "local[2]"}), "would lie on disk in the clear"),
    ],
)
def test_spark_brings_no_key_that_it_does_not_encrypt(session: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        issue_by_broadcast(session, "alias/orders")
    assert not session.broadcasts


def test_a_ticket_whose_key_spark_brings_holds_and_shows_none() -> None:
    session: Any = Session(PRIVATE | {"spark.io.encryption.enabled": "true"})

    ticket, key = issue_by_broadcast(session, "alias/orders")

    [brought] = session.broadcasts
    assert len(brought) == 32
    for shown in (pickle.dumps(ticket), repr(ticket).encode(), repr(key).encode()):
        assert brought not in shown
        assert brought.hex().encode() not in shown
    assert isinstance(ticket, BroadcastTicket)
    reference: Any = ticket.broadcast
    reference.value = brought
    assert ticket.redeem().decrypt(Role.TASK, 3, key.encrypt(Role.TASK, 3, b"task")) == b"task"
