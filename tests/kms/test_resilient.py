"""The resilient client: how often the service is asked, for how long a key is remembered, and what threads and forks share."""

from __future__ import annotations

import os
import pickle
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, FormatError, KeyNotFoundError, KmsAccessDeniedError, KmsError, KmsUnavailableError
from tablecrypt.kms.client import GeneratedKey, KeyManagementClient
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.kms.resilient import (
    LONGEST_WAIT_SECONDS,
    KeyCache,
    ResilientKeyManagementClient,
    Retry,
    RetryPolicy,
    cache_name,
    retries_heard,
)
from tests.support.forking import holds_in_forked_child


class Clock:
    """Time that passes only when someone sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


class Service:
    """The memory client behind a door that can be shut, slowed or broken."""

    def __init__(self) -> None:
        self._inner = MemoryKeyManagementClient({"kms.memory.name": f"resilient-{uuid.uuid4()}"})
        self._inner.create_key("orders")
        self.failures: list[Exception] = []
        self.before_unwrap: Callable[[], None] = lambda: None
        self.unwrapped: bytes | None = None
        self.asked = 0
        self.closed = 0

    def _ask(self) -> None:
        self.asked += 1
        if self.failures:
            raise self.failures.pop(0)

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        self._ask()
        return self._inner.wrap_key(key, wrapping_key_id)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        self._ask()
        self.before_unwrap()
        return self.unwrapped if self.unwrapped is not None else self._inner.unwrap_key(wrapped_key, wrapping_key_id)

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        self._ask()
        return self._inner.generate_key(wrapping_key_id, length)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def client(service: Service, clock: Clock) -> ResilientKeyManagementClient:
    retry = RetryPolicy(budget_seconds=30, clock=clock, sleep=clock.sleep, random=lambda: 0.999)
    return ResilientKeyManagementClient(service, cache_ttl_seconds=3600, cache_max_keys=3, retry=retry, clock=clock)


def _foreign_wrap(service: Service) -> bytes:
    """A blob that the client under test has never seen."""
    return service._inner.wrap_key(bytes(16), "orders")


def test_the_service_is_itself_a_client(service: Service) -> None:
    assert isinstance(service, KeyManagementClient)


def test_a_key_is_unwrapped_once_within_its_time(client: ResilientKeyManagementClient, service: Service, clock: Clock) -> None:
    wrapped = _foreign_wrap(service)
    for _ in range(5):
        assert client.unwrap_key(wrapped, "orders") == bytes(16)
        clock.now += 719
    assert client.calls == {"unwrap_key": 1}
    clock.now += 5
    client.unwrap_key(wrapped, "orders")
    assert client.calls == {"unwrap_key": 2}


def test_the_first_unwrap_of_what_was_wrapped_or_generated_here_asks_the_service(client: ResilientKeyManagementClient) -> None:
    generated = client.generate_key("orders", 32)
    wrapped = client.wrap_key(bytes(24), "orders")
    for _ in range(2):
        assert client.unwrap_key(generated.wrapped_key, "orders") == generated.key
        assert client.unwrap_key(wrapped, "orders") == bytes(24)
    assert client.calls == {"generate_key": 1, "wrap_key": 1, "unwrap_key": 2}


def test_a_remembered_key_is_not_given_for_another_master_key(client: ResilientKeyManagementClient) -> None:
    wrapped = client.wrap_key(bytes(16), "orders")
    with pytest.raises(KeyNotFoundError):
        client.unwrap_key(wrapped, "people")


def test_the_key_read_longest_ago_goes_first(client: ResilientKeyManagementClient, service: Service) -> None:
    blobs = [_foreign_wrap(service) for _ in range(4)]
    for blob in (blobs[0], blobs[1], blobs[2], blobs[0], blobs[3]):
        client.unwrap_key(blob, "orders")
    assert service.asked == 4
    client.unwrap_key(blobs[0], "orders")
    assert service.asked == 4
    client.unwrap_key(blobs[1], "orders")
    assert service.asked == 5


def test_closing_forgets_every_key_and_closes_the_service(client: ResilientKeyManagementClient, service: Service) -> None:
    wrapped = client.wrap_key(bytes(16), "orders")
    client.close()
    assert service.closed == 1
    client.unwrap_key(wrapped, "orders")
    assert client.calls == {"unwrap_key": 1}


def test_threads_that_want_the_same_key_make_one_call(client: ResilientKeyManagementClient, service: Service) -> None:
    wrapped = _foreign_wrap(service)
    answered = threading.Event()
    waiting = threading.Barrier(9)
    service.before_unwrap = lambda: _wait(answered)

    def ask() -> bytes:
        waiting.wait()
        return client.unwrap_key(wrapped, "orders")

    with ThreadPoolExecutor(max_workers=8) as pool:
        asking = [pool.submit(ask) for _ in range(8)]
        waiting.wait()
        answered.set()
        assert {future.result() for future in asking} == {bytes(16)}
    assert client.calls == {"unwrap_key": 1}


def test_threads_that_want_different_keys_do_not_wait_for_each_other(client: ResilientKeyManagementClient, service: Service) -> None:
    together = threading.Barrier(3, timeout=60)
    service.before_unwrap = lambda: _pass(together)
    blobs = [_foreign_wrap(service) for _ in range(3)]
    with ThreadPoolExecutor(max_workers=3) as pool:
        assert list(pool.map(lambda blob: client.unwrap_key(blob, "orders"), blobs)) == [bytes(16)] * 3


def test_a_thread_that_waits_gets_the_refusal_too(client: ResilientKeyManagementClient, service: Service) -> None:
    wrapped = _foreign_wrap(service)
    entered, leave = threading.Event(), threading.Event()

    def refuse() -> None:
        entered.set()
        _wait(leave)
        raise KmsAccessDeniedError("no")

    service.before_unwrap = refuse
    with ThreadPoolExecutor(max_workers=2) as pool:
        first = pool.submit(client.unwrap_key, wrapped, "orders")
        _wait(entered)
        flight = next(iter(client._state.get().in_flight.values()))
        second = pool.submit(client.unwrap_key, wrapped, "orders")
        while not flight._condition._waiters:  # type: ignore[attr-defined]
            os.sched_yield()
        leave.set()
        for asking in (first, second):
            with pytest.raises(KmsAccessDeniedError):
                asking.result()
    assert client.calls == {"unwrap_key": 1}


def test_an_interrupt_is_for_one_thread_and_leaves_nothing_behind(client: ResilientKeyManagementClient, service: Service) -> None:
    wrapped = _foreign_wrap(service)

    def interrupt() -> None:
        raise KeyboardInterrupt

    service.before_unwrap = interrupt
    with pytest.raises(KeyboardInterrupt):
        client.unwrap_key(wrapped, "orders")
    service.before_unwrap = lambda: None
    assert client.unwrap_key(wrapped, "orders") == bytes(16)


@pytest.mark.parametrize("refusal", [KmsAccessDeniedError("no"), KeyNotFoundError("no"), KmsError("no")])
def test_a_refusal_is_neither_retried_nor_remembered(
    client: ResilientKeyManagementClient, service: Service, clock: Clock, refusal: Exception
) -> None:
    wrapped = _foreign_wrap(service)
    service.failures = [refusal]
    with pytest.raises(type(refusal)):
        client.unwrap_key(wrapped, "orders")
    assert (service.asked, clock.waits) == (1, [])
    assert client.unwrap_key(wrapped, "orders") == bytes(16)


@pytest.mark.parametrize("operation", ["wrap", "unwrap", "generate"])
def test_an_outage_is_waited_out_in_growing_steps(
    client: ResilientKeyManagementClient, service: Service, clock: Clock, operation: str
) -> None:
    wrapped = _foreign_wrap(service)
    service.failures = [KmsUnavailableError("down") for _ in range(4)]
    asks: dict[str, Callable[[], object]] = {
        "wrap": lambda: client.wrap_key(bytes(16), "orders"),
        "unwrap": lambda: client.unwrap_key(wrapped, "orders"),
        "generate": lambda: client.generate_key("orders"),
    }
    asks[operation]()
    assert clock.waits == pytest.approx([0.0999, 0.1998, 0.3996, 0.7992])
    assert sum(client.calls.values()) == 5


def test_an_outage_longer_than_the_budget_is_reported_in_time(client: ResilientKeyManagementClient, service: Service, clock: Clock) -> None:
    service.failures = [KmsUnavailableError("down") for _ in range(1000)]
    with pytest.raises(KmsUnavailableError, match="down"):
        client.generate_key("orders")
    assert clock.now - 1000 < 30
    assert max(clock.waits) <= LONGEST_WAIT_SECONDS
    assert service.asked == len(clock.waits) + 1


@given(budget=st.floats(0, 600), draws=st.lists(st.floats(0, 1, exclude_max=True), min_size=1))
@example(budget=1 / 3, draws=[1 / 3])
def test_waiting_never_exceeds_the_budget(budget: float, draws: list[float]) -> None:
    clock = Clock()
    left = list(draws)

    def fail() -> None:
        raise KmsUnavailableError("down")

    policy = RetryPolicy(budget_seconds=budget, clock=clock, sleep=clock.sleep, random=lambda: left.pop() if left else 0.5)
    with pytest.raises(KmsUnavailableError):
        policy.call(fail)
    # Adding moments rounds.
    assert sum(clock.waits) <= budget + 1e-9
    assert all(0 <= wait <= LONGEST_WAIT_SECONDS for wait in clock.waits)


def test_each_retry_is_told_before_the_wait_and_to_those_who_listen_now(client: ResilientKeyManagementClient, service: Service) -> None:
    heard: list[Retry] = []
    with retries_heard(heard.append):
        service.failures = [KmsUnavailableError("down"), KmsUnavailableError("still down")]
        client.wrap_key(bytes(16), "orders")
        service.failures = [KmsAccessDeniedError("no")]
        with pytest.raises(KmsAccessDeniedError):
            client.wrap_key(bytes(16), "orders")
    service.failures = [KmsUnavailableError("down again")]
    client.wrap_key(bytes(16), "orders")

    assert [str(each.problem) for each in heard] == ["down", "still down"]
    assert [round(each.seconds_left, 1) for each in heard] == [30.0, 29.9]


@given(ttl=st.integers(0, 100), bound=st.integers(0, 5), steps=st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 60))))
def test_the_cache_gives_only_what_was_put_recently_and_stays_in_bounds(ttl: int, bound: int, steps: list[tuple[bool, int, int]]) -> None:
    clock = Clock()
    cache = KeyCache(ttl, bound, clock)
    put_at: dict[int, float] = {}
    for is_put, which, passes in steps:
        clock.now += passes
        name = cache_name(bytes([which]), "orders")
        if is_put:
            cache.put(name, Secret(bytes([which]) * 16))
            put_at[which] = clock.now
        else:
            found = cache.get(name)
            if found is not None:
                assert found.reveal() == bytes([which]) * 16
                assert clock.now - put_at[which] < ttl
        assert len(cache) <= bound


def test_the_newest_key_is_remembered_when_the_cache_is_full() -> None:
    clock = Clock()
    cache = KeyCache(10, 2, clock)
    for which in range(5):
        name = cache_name(bytes([which]), "orders")
        cache.put(name, Secret(bytes([which]) * 16))
        assert cache.get(name) == Secret(bytes([which]) * 16)


def test_a_blob_that_unwraps_to_no_aes_key_is_refused(service: Service, client: ResilientKeyManagementClient) -> None:
    wrapped = _foreign_wrap(service)
    service.unwrapped = b"seven b"
    with pytest.raises(FormatError, match="7 bytes"):
        client.unwrap_key(wrapped, "orders")


def test_a_forked_child_asks_for_itself_even_while_a_thread_holds_the_lock(client: ResilientKeyManagementClient) -> None:
    wrapped = client.wrap_key(bytes(16), "orders")
    state = client._state.get()
    with state.lock, client._state._lock:
        assert holds_in_forked_child(lambda: client.unwrap_key(wrapped, "orders") == bytes(16) and client.calls == {"unwrap_key": 1})
    assert client.calls == {"wrap_key": 1}


def test_a_client_is_not_pickled(client: ResilientKeyManagementClient) -> None:
    with pytest.raises(TypeError, match="load_kms"):
        pickle.dumps(client)


@pytest.mark.parametrize("name", ["encryption.kms.cache-ttl-ms", "encryption.kms.cache-max-keys", "encryption.kms.retry-budget-ms"])
@pytest.mark.parametrize("value", ["-1", "1.5", "an hour", ""])
def test_a_property_that_is_no_number_is_refused(service: Service, name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        ResilientKeyManagementClient.from_properties(service, {name: value})


def test_a_ttl_of_nothing_remembers_nothing(service: Service) -> None:
    client = ResilientKeyManagementClient.from_properties(service, {"encryption.kms.cache-ttl-ms": "0"})
    wrapped = client.wrap_key(bytes(16), "orders")
    client.unwrap_key(wrapped, "orders")
    client.unwrap_key(wrapped, "orders")
    assert client.calls == {"wrap_key": 1, "unwrap_key": 2}


def _wait(event: threading.Event) -> None:
    assert event.wait(timeout=60)


def _pass(barrier: threading.Barrier) -> None:
    barrier.wait()
