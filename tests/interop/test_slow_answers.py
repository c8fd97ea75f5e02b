"""A broker that takes long: kproxy answers in its place, in time, and each record is there once all the same."""

import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from kproxy.codec.messages import ApiKey
from kproxy.testing.kafka import DEFAULT_VERSION
from tests.interop import lossy, session
from tests.interop.proxy import KproxyProcess
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_BEFORE: Final = 300
"""Records, each in a request of its own: so many that kproxy takes their client for one that waits for each answer."""
_RECORDS: Final = 600
_PAUSE_S: Final = 0.01
_TIMEOUT_MS: Final = 1500
_DELAY_S: Final = 2.0


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[lossy.Chain, KproxyProcess]]:
    """Give a broker, a relay in front of it, and a kproxy in front of both."""
    with (
        lossy.direct(DEFAULT_VERSION) as chain,
        KproxyProcess(chain.bootstrap, tmp_path_factory.mktemp("kproxy") / "log") as kproxy,
    ):
        yield chain, kproxy
        kproxy.check()


@pytest.mark.parametrize("api", ["0.9", "newest"])
def test_what_librdkafka_had_ready_after_a_time_out_hides_no_retry(
    api: str, slow: tuple[lossy.Chain, KproxyProcess]
) -> None:
    """With one request in flight it still makes the next one before the response, and sends that before the retry.

    So it does not keep the order of its records if it is held up for longer than its backoff, and no order is checked.
    """
    chain, kproxy = slow
    topic = f"slow.{api}"
    session.create_topics(chain.broker, [topic])
    old: dict[str, Any] = {"api.version.request": False, "broker.version.fallback": "0.9.0.1"} if api == "0.9" else {}
    settings = {"max.in.flight": 1, "request.timeout.ms": _TIMEOUT_MS, "retry.backoff.ms": 100, "linger.ms": 0}
    producer = Producer(
        {"bootstrap.servers": kproxy.bootstrap, "client.id": topic, **settings, **old}, logger=session.QUIET
    )
    failed: list[str] = []
    for number, fields in enumerate(session.raw(lossy.numbered(_RECORDS, session.now_ms()))):
        if number == _BEFORE:
            assert producer.flush(PATIENCE_S) == 0
            chain.faults.request_delays = {ApiKey.PRODUCE: _DELAY_S}
        fields["partition"] = 0
        producer.produce(topic, on_delivery=lambda error, _: error and failed.append(error.str()), **fields)
        producer.poll(0)
        time.sleep(_PAUSE_S)
    chain.faults.request_delays = {}
    assert producer.flush(PATIENCE_S) == 0
    assert not failed
    found = lossy.examine(chain.broker, topic, _RECORDS)
    assert (found.duplicates, found.lost) == (0, 0)
