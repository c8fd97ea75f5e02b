"""Older brokers and kfake through kproxy, for released clients: lost responses, idempotence, both coordinators."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any, Final
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Producer

from kproxy.dedup.producer_ids import is_reserved_producer_id
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.relay import Drop, Ending
from tests.contract.backends import OTHERS, start
from tests.contract.coordinators import init_transactional_id
from tests.interop import lossy
from tests.interop.plain_reader import read_committed

_RECORDS: Final = 400
_TIMEOUT_S: Final = 60.0
_LOSSES: Final = Drop(every=10, share=0.03, ending=Ending.FIN)
_OLD: Final[dict[str, Any]] = {"api.version.request": False, "broker.version.fallback": "0.9.0.1"}
_LOSSY: Final[dict[str, Any]] = {
    "max.in.flight": 1,
    "batch.num.messages": 5,
    "linger.ms": 0,
    "message.send.max.retries": 100,
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
}
Chains = Callable[[str, str], lossy.Chain]

#: The relay loses responses and closes in good order, before records without timestamps: only the user can say so.
_DECLARED: Final = ("--clean-close-window-ms", "60000")


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chains]:
    """Give clients, relays, kproxy and a back end by the back end's name and the coordinator of transactions."""
    with ExitStack() as running:
        backend = cache(lambda name: running.enter_context(start(name, 1)))

        @cache
        def chained(name: str, home: str) -> lossy.Chain:
            log = tmp_path_factory.mktemp(f"{name}-{home}") / "log"
            return running.enter_context(
                lossy.through_kproxy(backend(name), log, "--transactions-home", home, *_DECLARED)
            )

        yield chained


@pytest.fixture(params=OTHERS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _topic(chain: lossy.Chain, *, reserved: bool = False) -> str:
    """A new topic; as a transactional id it has a producer id of kproxy's own range at the broker, or not."""
    with ClusterClient(chain.broker) as client:
        while True:
            name = f"other-{uuid4().hex[:8]}"
            if is_reserved_producer_id(init_transactional_id(client, name).producer_id) is reserved:
                client.create_topic(name)
                return name


def _read(bootstrap: str, topic: str, level: str) -> list[str]:
    """All records up to the end that a consumer of this isolation level sees."""
    return read_committed(bootstrap, topic, 1, level)[0]


@pytest.mark.parametrize("client", ["old", "plain", "idempotent"])
def test_lost_answers_leave_each_record_once(backend: str, chain: Chains, client: str) -> None:
    through = chain(backend, "auto")
    topic, before = _topic(through), through.dropped()
    more = {"old": _OLD, "plain": {}, "idempotent": {"enable.idempotence": True}}[client]
    producer = Producer({"bootstrap.servers": through.bootstrap, **_LOSSY, **more})
    through.faults.drop_answers = _LOSSES
    failed: list[Any] = []
    sent = [str(number) for number in range(_RECORDS)]
    try:
        for value in sent:
            producer.produce(topic, value, partition=0, on_delivery=lambda error, _: error and failed.append(error))
        assert (producer.flush(_TIMEOUT_S), failed) == (0, [])
    finally:
        through.faults.drop_answers = None
    assert through.dropped() > before
    assert _read(through.broker, topic, "read_uncommitted") == sent
    assert through.kproxy is not None
    through.kproxy.check()


@pytest.mark.parametrize("home", ["broker", "broker-fenced", "kproxy"])
def test_transactions_are_whole_or_not_at_all(backend: str, chain: Chains, home: str) -> None:
    through = chain(backend, home)
    topic = _topic(through)
    producer = Producer({"bootstrap.servers": through.bootstrap, "transactional.id": topic})
    producer.init_transactions(_TIMEOUT_S)
    for value in ("a", "lost", "b"):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        if value == "lost":
            assert producer.flush(_TIMEOUT_S) == 0
            producer.abort_transaction(_TIMEOUT_S)
        else:
            producer.commit_transaction(_TIMEOUT_S)
    assert _read(through.bootstrap, topic, "read_committed") == ["a", "b"]
    assert _read(through.bootstrap, topic, "read_uncommitted") == ["a", "lost", "b"]
    assert _read(through.broker, topic, "read_committed") == (["a", "b"] if home != "kproxy" else ["a", "lost", "b"])
    assert through.kproxy is not None
    through.kproxy.check()


@pytest.mark.parametrize("home", ["broker", "broker-fenced", "kproxy"])
def test_a_newer_producer_fences_and_aborts(backend: str, chain: Chains, home: str) -> None:
    through = chain(backend, home)
    topic = _topic(through)
    older, newer = (Producer({"bootstrap.servers": through.bootstrap, "transactional.id": topic}) for _ in range(2))
    older.init_transactions(_TIMEOUT_S)
    older.begin_transaction()
    older.produce(topic, "old", partition=0)
    assert older.flush(_TIMEOUT_S) == 0
    newer.init_transactions(_TIMEOUT_S)
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        older.commit_transaction(_TIMEOUT_S)
    newer.begin_transaction()
    newer.produce(topic, "new", partition=0)
    newer.commit_transaction(_TIMEOUT_S)
    assert _read(through.bootstrap, topic, "read_committed") == ["new"]


@pytest.mark.backends
@pytest.mark.parametrize("home", ["broker", "broker-fenced"])
def test_a_producer_id_of_kproxys_own_range_is_refused(chain: Chains, home: str) -> None:
    """kfake derives it from the transactional id; a record with such an id would be taken for one of kproxy's."""
    through = chain("kfake", home)
    producer = Producer({"bootstrap.servers": through.bootstrap, "transactional.id": _topic(through, reserved=True)})
    with pytest.raises(KafkaException, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        producer.init_transactions(_TIMEOUT_S)
