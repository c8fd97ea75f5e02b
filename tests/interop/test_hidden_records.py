"""Consumers of committed records on runs of aborted ones, short and long: none shows them, and none stops at them."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from tests.interop import session
from tests.interop import transaction_script as scripts
from tests.interop.homes import HOMES, Home, readers_of
from tests.interop.records import Record
from tests.interop.transactional import Reader
from tests.support.clients import run_driver

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_AT_A_TIME: Final = 4
_LARGE: Final = bytes(100_000)
_RUNS: Final = ((5, True), (20, False), (5, True), (300, False), (5, True), (20, False))
"""How many records, and whether they are committed. Three hundred make 30 MB."""
_EXTRA_MS: Final = 1500


def _visible() -> list[Record]:
    first, names = 0, []
    for count, committed in _RUNS:
        names += [f"{first + i}" for i in range(count) if committed]
        first += count
    return [scripts.record(name, 0) for name in names]


@dataclass(frozen=True)
class _Found:
    """What each consumer read, and how many fetches kproxy had answered before."""

    results: dict[str, Future[dict[str, Any]]]
    fetches: float


def _fetches(home: Home) -> float:
    page = "" if home.kproxy is None else home.kproxy.metrics()
    return sum(map(float, re.findall(r'^kproxy_requests_total\{.*"Fetch".*\} (\S+)$', page, re.M)))


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest, home: Callable[[str], Home]) -> Iterator[dict[str, _Found]]:
    """Write the topic of each home whose tests are to run, and let all consumers read it, some at a time."""

    def start(name: str) -> _Found:
        place, topic = home(name), f"hidden.{name}"
        session.create_topics(place.kafka.bootstrap, [topic])
        _write(place.bootstrap, topic)
        before = _fetches(place)
        readers = readers_of(name)
        return _Found({reader.name: pool.submit(_read, reader, place, topic) for reader in readers}, before)

    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        yield {name: start(name) for name in dict.fromkeys(session.asked(request, "home_name"))}
        pool.shutdown(cancel_futures=True)


def _read(reader: Reader, home: Home, topic: str) -> dict[str, Any]:
    step = session.consume_step(topic, f"{topic}.{reader.name}", len(_visible()), _EXTRA_MS)
    return run_driver(reader.install(), session.job(home.bootstrap, reader.options, [step]))[0]


def _write(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 50})
    producer.init_transactions(30)
    number = 0
    for count, committed in _RUNS:
        producer.begin_transaction()
        for _ in range(count):
            value = b"%d" % number if committed else _LARGE
            producer.produce(topic, value, b"%d" % number, partition=0)
            number += 1
        producer.flush(60)
        end = producer.commit_transaction if committed else producer.abort_transaction
        end(30)


@pytest.mark.parametrize(
    ("home_name", "reader"), [(name, reader.name) for name in HOMES for reader in readers_of(name)]
)
def test_aborted_records_are_neither_shown_nor_stopped_at(
    home_name: str, reader: str, found: dict[str, _Found]
) -> None:
    result = found[home_name].results[reader].result()
    assert "error" not in result, result["error"]
    problem = scripts.problem(_visible(), result["records"])
    if problem:
        pytest.fail(problem, pytrace=False)


@pytest.mark.parametrize("home_name", [name for name in HOMES if name == "kproxy"])
def test_no_consumer_asks_in_a_circle(home_name: str, home: Callable[[str], Home], found: dict[str, _Found]) -> None:
    read = found[home_name]
    for future in read.results.values():
        future.result()
    # One that stalls, or does not wait at the end of the log, sends hundreds in a second.
    place = home(home_name)
    assert 0 < _fetches(place) - read.fetches < 40 * len(read.results)
    assert place.kproxy is not None
    place.kproxy.check()
