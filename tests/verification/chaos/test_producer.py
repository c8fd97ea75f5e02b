"""The legacy producer against a fake broker: what it writes down is what happened, and it can be made to err."""

import functools
import io
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from kproxy.codec._generated.produce import ProduceRequest, ProduceResponse
from kproxy.codec.batch import iter_records
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.testing.fake_broker.controls import CloseAfter, ControlFunction, Drop, Edit, Fault
from kproxy.testing.fake_broker.fake_api import Call
from kproxy.testing.fake_broker.fake_cluster import ClusterConfig
from kproxy.testing.fake_broker.fake_server import open_fake_cluster
from tests.net.harness import eventually
from verification.chaos.habits import EQUAL, Habits, PendingRecord, record_set
from verification.chaos.producer import LegacyProducer
from verification.chaos.recorder import Recorder
from verification.chaos.verdict import read_everything
from verification.history import AnomalyKind, Operation, Outcome, check, read_history

TOPICS = {"one": 2, "two": 2}
PLACES = tuple((topic, partition) for topic, count in TOPICS.items() for partition in range(count))
HABITS = Habits("p", PLACES, version=3, pause_s=0.001, backoff_s=0.001, timeout_ms=200)


async def produce(
    habits: Habits, directory: Path, enough: Callable[[Recorder], bool], control: ControlFunction | None = None
) -> tuple[list[Operation], Recorder]:
    """Let a producer run until there is enough, and return the history with all that is in the log at the end."""
    config = ClusterConfig(num_partitions=2)
    with Recorder(directory) as recorder:
        async with open_fake_cluster(2, config=config) as cluster:
            if control is not None:
                cluster.cluster.control(ApiKey.PRODUCE, control)
            host, _, port = cluster.bootstrap.split(",")[0].rpartition(":")
            producer = LegacyProducer(habits, (host, int(port)), recorder)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(producer.run)
                await eventually(functools.partial(enough, recorder))
                producer.stop()
            batches = io.StringIO()
            read = functools.partial(read_everything, cluster.bootstrap, TOPICS, batches)
            for operation in await trio.to_thread.run_sync(lambda: list(read())):
                recorder.add(operation)
    return list(read_history(recorder.path)), recorder


def acknowledged(count: int) -> Callable[[Recorder], bool]:
    return lambda recorder: recorder.records[Outcome.OK] >= count


def every(number: int, fault: Fault) -> ControlFunction:
    calls = itertools.count(1)
    return lambda _: fault if next(calls) % number == 0 else None


def tell(error: ErrorCode) -> Fault:
    def change(answer: Message) -> None:
        assert isinstance(answer, ProduceResponse)
        for topic in answer.responses:
            for part in topic.partition_responses:
                part.error_code = error

    return Edit(change)


@pytest.mark.parametrize(
    "habits",
    [
        HABITS,
        Habits("q", PLACES, version=3, depth=4, codec=1, regroup=True, pause_s=0.001),
        Habits("r", PLACES, version=3, equal=True, acks=1, pause_s=0.001),
    ],
    ids=["alone", "pipelined", "equal"],
)
async def test_where_nothing_fails_the_history_is_clean(habits: Habits, tmp_path: Path) -> None:
    history, recorder = await produce(habits, tmp_path, acknowledged(200))
    assert check(history) == []
    assert recorder.records[Outcome.INFO] == 0
    places = Counter((send.topic, send.partition) for operation in history for send in operation.sends)
    assert set(places) == set(PLACES)


@pytest.mark.parametrize("regroup", [False, True])
async def test_a_producer_that_loses_answers_doubles_records_and_the_checker_says_so(
    regroup: bool, tmp_path: Path
) -> None:
    habits = Habits("p", PLACES, version=3, regroup=regroup, pause_s=0.001, backoff_s=0.001)
    history, _ = await produce(habits, tmp_path, acknowledged(300), every(7, CloseAfter()))
    found = check(history)
    assert {anomaly.kind for anomaly in found} == {AnomalyKind.DUPLICATE}


async def test_equal_records_that_were_doubled_are_counted(tmp_path: Path) -> None:
    habits = Habits("p", PLACES, version=3, equal=True, pause_s=0.001, backoff_s=0.001)
    history, _ = await produce(habits, tmp_path, acknowledged(300), every(7, CloseAfter()))
    assert {anomaly.kind for anomaly in check(history)} == {AnomalyKind.FALSE_DEDUP}
    assert {anomaly.value for anomaly in check(history)} == {EQUAL}


async def test_an_answer_that_never_comes_is_waited_for_so_long_and_then_the_record_is_sent_again(
    tmp_path: Path,
) -> None:
    history, recorder = await produce(
        HABITS, tmp_path, lambda recorder: recorder.errors["no answer in time"] > 0, every(5, Drop(apply=False))
    )
    assert check(history) == []
    assert recorder.records[Outcome.INFO] == 0


async def test_a_record_that_cannot_be_delivered_in_time_is_of_unknown_fate(tmp_path: Path) -> None:
    habits = Habits("p", PLACES, version=3, pause_s=0.001, backoff_s=0.001, delivery_s=0.05)
    _, recorder = await produce(
        habits,
        tmp_path,
        lambda recorder: recorder.records[Outcome.INFO] > 0,
        lambda _: tell(ErrorCode.NOT_ENOUGH_REPLICAS),
    )
    assert recorder.errors["NOT_ENOUGH_REPLICAS"] > 0
    assert recorder.unexpected == {}
    assert recorder.records[Outcome.OK] == 0


async def test_an_error_that_old_clients_do_not_know_is_noted(tmp_path: Path) -> None:
    _, recorder = await produce(HABITS, tmp_path, acknowledged(50), every(3, tell(ErrorCode.INVALID_PRODUCER_EPOCH)))
    assert set(recorder.unexpected) == {"INVALID_PRODUCER_EPOCH"}


async def test_requests_have_the_version_and_the_client_id_of_the_habits(tmp_path: Path) -> None:
    seen: set[tuple[str | None, int, int]] = set()

    def note(call: Call) -> None:
        assert isinstance(call.request, ProduceRequest)
        seen.add((call.client_id, call.version, call.request.acks))

    await produce(HABITS, tmp_path, acknowledged(20), note)
    assert seen == {("p", 3, -1)}


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_record_sets_hold_values_and_timestamps_in_the_format_of_their_time(magic: int, codec: int) -> None:
    batch = [PendingRecord(("t", 0), f"v{number}", 1000 + number, 0) for number in range(5)]
    data = record_set(batch, magic, codec)
    assert data[16] == magic
    records = list(iter_records(data, max_decompressed_bytes=1 << 20))
    assert [record.value for record in records] == [b"v0", b"v1", b"v2", b"v3", b"v4"]
    if magic:
        assert [record.timestamp for record in records] == [1000, 1001, 1002, 1003, 1004]
