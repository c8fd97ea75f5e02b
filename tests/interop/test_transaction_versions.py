"""Transactions that a real Kafka coordinates, by its agreed level (transaction.version), and those that take too long.

One broker, whose level is lowered and raised again as an operator does it.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Producer

from kproxy.client import ControlClient
from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.update_features import UpdateFeaturesRequest, UpdateFeaturesRequestFeatureUpdateKey
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from kproxy.testing.raw_connection import RawConnection
from tests.interop import session
from tests.interop import transaction_script as scripts
from tests.interop.broker_home import Stage, headers_in
from tests.interop.proxy import KproxyProcess
from tests.interop.transactional import TRANSACTIONAL
from tests.support.clients import run_driver
from tests.support.patience import PATIENCE_S, eventually

if TYPE_CHECKING:
    from kproxy.codec._generated.api_versions import ApiVersionsResponse
    from kproxy.codec._generated.update_features import UpdateFeaturesResponse

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_NEWEST: Final = 2
_SAFE_DOWNGRADE: Final = 2
_UPGRADE: Final = 1
_TIMEOUT_MS: Final = 8_000
_ENDS, _AGAIN = "ends", "writes again"
"""What librdkafka does after its transaction's time."""
_RELEASES: Final = ("java-4.4.0", "java-2.8.2")
#: How often the coordinator looks for transactions that take too long; 10 s otherwise.
_LOOKS: Final = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
#: librdkafka without ApiVersions and idempotence, as it was for 0.9.
_OLD: Final = {"api.version.request": False, "broker.version.fallback": "0.9.0.1", "acks": "all"}


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[RealKafka]:
    with RealKafka(config={_LOOKS: "200"}) as brokers:
        yield brokers


@pytest.fixture(scope="module")
def place(own_kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KproxyProcess, Path]]:
    """One kproxy for all levels, and its control socket."""
    directory = tmp_path_factory.mktemp("levels")
    options = ("--transactions-home", "broker-fenced", "--control-socket", str(directory / "control.sock"))
    with KproxyProcess(own_kafka.bootstrap, directory / "log", *options) as kproxy:
        yield kproxy, directory / "control.sock"


@pytest.fixture
def stage(own_kafka: RealKafka, place: tuple[KproxyProcess, Path]) -> Iterator[Stage]:
    name = f"levels-{uuid4().hex[:8]}"
    with ClusterClient(own_kafka.bootstrap) as client:
        client.create_topic(name, 1)
    yield Stage(own_kafka, place[0], name)
    agree(own_kafka, _NEWEST)
    place[0].check()


def agree(kafka: RealKafka, level: int) -> None:
    """Have the cluster agree on a level of transaction.version."""
    for way in (_SAFE_DOWNGRADE, _UPGRADE):
        update = UpdateFeaturesRequestFeatureUpdateKey("transaction.version", level, upgrade_type=way)
        with RawConnection("127.0.0.1", kafka.ports[0]) as broker:
            answer: UpdateFeaturesResponse = broker.call(UpdateFeaturesRequest(30_000, [update]), 1)
        if not answer.error_code and not any(row.error_code for row in answer.results):
            # The controller has answered; the broker hears of it later.
            eventually(lambda: _level(kafka) == level, otherwise=lambda: _level(kafka))
            return
    raise AssertionError(answer)


def _level(kafka: RealKafka) -> int:
    """The level by which the broker works."""
    with RawConnection("127.0.0.1", kafka.ports[0]) as broker:
        answer: ApiVersionsResponse = broker.call(ApiVersionsRequest("test", "1"), 3)
    return {row.name: row.max_version_level for row in answer.finalized_features}.get("transaction.version", 0)


def _options(stage: Stage, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": stage.kproxy.bootstrap, "transactional.id": stage.name, "log_level": 0, **more}


def _write(stage: Stage, producer: Producer, value: str) -> None:
    producer.begin_transaction()
    producer.produce(stage.name, value)
    producer.commit_transaction(PATIENCE_S)


@pytest.mark.parametrize("level", [1, 0])
def test_each_transaction_has_an_epoch_of_its_own_below_the_newest_level(stage: Stage, level: int) -> None:
    agree(stage.kafka, level)
    producer = Producer(_options(stage))
    producer.init_transactions(PATIENCE_S)
    _write(stage, producer, "1")
    producer.begin_transaction()
    producer.produce(stage.name, "no")
    producer.flush(PATIENCE_S)
    producer.abort_transaction(PATIENCE_S)
    _write(stage, producer, "2")
    assert stage.values() == ["1", "2"]
    data = _data(stage)
    assert [header.base_sequence for header in data] == [0, 0, 0]
    assert len({header.producer_epoch for header in data}) == 3
    newer = Producer(_options(stage))
    newer.init_transactions(PATIENCE_S)
    with pytest.raises(KafkaException, match=r"(?i)fenced|epoch"):
        _write(stage, producer, "late")
    _write(stage, newer, "3")
    assert stage.values() == ["1", "2", "3"]


def test_a_producer_continues_while_the_cluster_agrees_again(stage: Stage) -> None:
    """Not to level 0: Kafka 4.3.0 is stuck there with every id whose last end has raised its epoch."""
    producer = Producer(_options(stage))
    producer.init_transactions(PATIENCE_S)
    for number, level in enumerate((2, 1, 2)):
        agree(stage.kafka, level)
        _write(stage, producer, str(number))
    assert stage.values() == ["0", "1", "2"]
    assert len({(header.producer_id, header.producer_epoch) for header in _data(stage)}) == 3


def _data(stage: Stage) -> list[Any]:
    with ClusterClient(stage.kafka.bootstrap) as client:
        return [header for header in headers_in(client.read_all(stage.name)) if not header.is_control]


@pytest.mark.parametrize("level", [1, 0])
def test_clients_without_transactions_by_hand_below_the_newest_level(
    stage: Stage, place: tuple[KproxyProcess, Path], level: int
) -> None:
    agree(stage.kafka, level)
    control = ControlClient(place[1])

    def write(value: str) -> None:
        producer = Producer({"bootstrap.servers": stage.kproxy.bootstrap, "client.id": stage.name, **_OLD})
        producer.produce(stage.name, value)
        assert producer.flush(PATIENCE_S) == 0

    for value in ("1", "2"):
        with control.transaction(client_id=stage.name):
            write(value)
            assert stage.values() == ["1"][: int(value) - 1]
    with pytest.raises(ZeroDivisionError), control.transaction(client_id=stage.name):
        write("no")
        raise ZeroDivisionError
    write("plain")
    assert stage.values() == ["1", "2", "plain"]
    assert len({header.producer_epoch for header in _data(stage)[:3]}) == 3


# -- what takes too long


def _until_aborted(stage: Stage, name: str) -> None:
    """Waits until the broker has aborted a transaction of this id, which nobody else does."""
    there = Stage(stage.kafka, stage.kproxy, name)
    eventually(lambda: there.state()[0] == "CompleteAbort", otherwise=there.state)


@pytest.fixture(scope="module")
def late(
    own_kafka: RealKafka,
    place: tuple[KproxyProcess, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[int], dict[str, Future[None]]]:
    """What comes of the producers that take too long at a level: side by side, as the level is the whole cluster's."""

    def stage() -> Stage:
        name = f"late-{uuid4().hex[:8]}"
        with ClusterClient(own_kafka.bootstrap) as client:
            client.create_topic(name, 1)
        return Stage(own_kafka, place[0], name)

    @cache
    def run(level: int) -> dict[str, Future[None]]:
        agree(own_kafka, level)
        directory = tmp_path_factory.mktemp("late")
        with ThreadPoolExecutor() as pool:
            made = {way: pool.submit(_librdkafka, stage(), level, again=way == _AGAIN) for way in (_ENDS, _AGAIN)}
            if level == _NEWEST:
                made |= {release: pool.submit(_java, stage(), directory, release) for release in _RELEASES}
        agree(own_kafka, _NEWEST)
        place[0].check()
        return made

    return run


@pytest.mark.parametrize("level", [2, 1])
@pytest.mark.parametrize("way", [_ENDS, _AGAIN])
def test_librdkafka_learns_that_it_took_too_long(
    late: Callable[[int], dict[str, Future[None]]], level: int, way: str
) -> None:
    """At the newest level it may abort and continue. For a Produce it gets an old epoch's error: it is fenced."""
    late(level)[way].result()


def _librdkafka(stage: Stage, level: int, *, again: bool) -> None:
    limits = {"transaction.timeout.ms": _TIMEOUT_MS, "message.timeout.ms": _TIMEOUT_MS - 100}
    producer = Producer(_options(stage, **limits, error_cb=lambda _: None))
    producer.init_transactions(PATIENCE_S)
    _write(stage, producer, "1")
    producer.begin_transaction()
    producer.produce(stage.name, "no")
    producer.flush(PATIENCE_S)
    _until_aborted(stage, stage.name)
    with pytest.raises(KafkaException) as told:
        if again:
            producer.produce(stage.name, "no")
        producer.commit_transaction(PATIENCE_S)
    error: Any = told.value.args[0]
    if level == _NEWEST and not again:
        assert error.txn_requires_abort()
        producer.abort_transaction(PATIENCE_S)
    else:
        assert error.fatal()
        producer = Producer(_options(stage))
        producer.init_transactions(PATIENCE_S)
    _write(stage, producer, "2")
    assert stage.values() == ["1", "2"]


def _too_long(name: str, directory: Path, *, again: bool) -> scripts.Script:
    """Two transactions, the second of which waits for a file; what the producer can do then; and another producer."""
    made = scripts.Script(name, (name, name))
    made.do("open", "a")
    made.transaction("a", "commit", 1)
    made.do("begin", "a")
    made.produce("a", name, 1, committed=False)
    made.do("wait", "a", path=str(directory / name))
    if again:
        made.produce("a", name, 1, committed=False, fails=True)
    made.do("commit", "a", fails=True)
    made.do("abort", "a", fails=True)
    made.do("begin", "a", fails=True)
    made.produce("a", name, 1, committed=True, fails=True)
    made.do("commit", "a", fails=True)
    made.do("open", "b")
    made.transaction("b", "commit", 1)
    return made


@pytest.mark.parametrize("release", _RELEASES)
def test_java_learns_that_it_took_too_long(late: Callable[[int], dict[str, Future[None]]], release: str) -> None:
    """It may abort and continue; with Kafka 4.3.0 alone it is lost for good if it commits."""
    late(_NEWEST)[release].result()


def _java(stage: Stage, directory: Path, release: str) -> None:
    client = next(client for client in TRANSACTIONAL if client.name == release)
    made = [_too_long(f"{stage.name}.{again}", directory, again=again) for again in (False, True)]
    session.create_topics(stage.kafka.bootstrap, [script.client for script in made])
    options = {**client.options, "producer": {"transaction.timeout.ms": _TIMEOUT_MS}}
    job = session.job(stage.kproxy.bootstrap, options, [script.step() for script in made])
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_driver, client.install(), job)
        for script in made:
            _until_aborted(stage, script.id)
            (directory / script.client).touch()
        results = running.result()
    for script, result in zip(made, results, strict=True):
        outcomes = result.get("outcomes", [])
        assert len(outcomes) == len(script.actions), result
        first, last = (at for at in script.fenced() if script.actions[at]["do"] == "commit")
        assert outcomes[first] is not None
        assert outcomes[last] is None
        values = Stage(stage.kafka, stage.kproxy, script.client).values()
        assert [value.rsplit(" ", 1)[1] for value in values] == ["0", "2", "2"]
