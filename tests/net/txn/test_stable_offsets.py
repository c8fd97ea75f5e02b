"""How far partitions are decided: announced bounds, and what the logs hold after them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from kproxy.codec import compression
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.codec.version_choice import NoCommonVersion
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.broker_client import BrokerClient
from kproxy.net.txn import stable_offsets as module
from kproxy.net.txn.stable_offsets import StableOffsets
from kproxy.testing.fake_broker import Call, Drop, Edit
from kproxy.txn.last_stable import Question, Row
from kproxy.txn.verdict import Verdict
from tests.codec.message_sets import message_set
from tests.net.harness import Proxied, proxied
from tests.net.txn.test_waits import NOW, PID, Log, write


@asynccontextmanager
async def stable_offsets(log: Log, **options: Any) -> AsyncIterator[tuple[Proxied, StableOffsets]]:
    async def read_to_end() -> None:
        await trio.lowlevel.checkpoint()

    async with proxied(**options) as proxy:
        proxy.brokers.create_topic("t", 2)
        offsets = StableOffsets(proxy.cluster, proxy.config, proxy.stats.retries, log, log.bound, read_to_end)
        try:
            yield proxy, offsets
        finally:
            offsets.close()


P0, P1 = ("t", 0), ("t", 1)


async def test_the_first_undecided_batch_after_the_bound() -> None:
    log = Log()
    async with stable_offsets(log) as (proxy, offsets):
        log.verdicts[1] = Verdict.COMMITTED
        for epoch in (-1, 1, -1):
            write(proxy, b"x", epoch)
        write(proxy, b"x", 2)
        write(proxy, b"x")
        log.bounds[P0] = 1
        assert await offsets.stable(Question({P0: 5})) == {P0: 3}
        assert log.stopped == [(PID, "t", 0, 3)]
        log.decide(2, Verdict.ABORTED)
        assert await offsets.stable(Question({P0: 5})) == {P0: 5}


async def test_batches_of_many_records_are_decided_as_a_whole() -> None:
    log = Log(bounds={P0: 1})
    async with stable_offsets(log) as (proxy, offsets):
        log.verdicts[1] = Verdict.COMMITTED
        part = proxy.brokers.topics["t"].partitions[0].log
        for epoch in (1, 2):
            rows = [Record(n, NOW, None, b"x") for n in range(3)]
            part.append(memoryview(build_batch(rows, producer_id=PID, producer_epoch=epoch, base_sequence=0)), 3, NOW)
        assert await offsets.stable(Question({P0: 3})) == {P0: 3}
        assert await offsets.stable(Question({P0: 6})) == {P0: 3}


async def test_no_bound_no_look() -> None:
    log = Log()
    async with stable_offsets(log) as (proxy, offsets):
        write(proxy, b"x", 2)
        log.bounds[P1] = 4
        assert await offsets.stable(Question({P0: 1, P1: 3})) == {P0: 1, P1: 3}
        assert proxy.stats.retries.readback_bytes == 0


async def test_nothing_is_checked_after_the_end() -> None:
    log = Log(bounds={P0: 0})
    async with stable_offsets(log) as (proxy, offsets):
        write(proxy, b"x")
        write(proxy, b"x", 2)
        assert await offsets.stable(Question({P0: 1})) == {P0: 1}


async def test_what_was_found_decided_is_not_read_again() -> None:
    log = Log(bounds={P0: 0})
    async with stable_offsets(log) as (proxy, offsets):
        for _ in range(50):
            write(proxy, bytes(1000))
        assert await offsets.stable(Question({P0: 50})) == {P0: 50}
        read = proxy.stats.retries.readback_bytes
        assert await offsets.stable(Question({P0: 50})) == {P0: 50}
        assert proxy.stats.retries.readback_bytes == read
        write(proxy, b"x", 2)
        assert await offsets.stable(Question({P0: 51})) == {P0: 50}
        assert proxy.stats.retries.readback_bytes < read + 1000


async def recreate(proxy: Proxied, offsets: StableOffsets) -> None:
    """Five records are written and their offsets asked for; then the partition is a new one, with one record."""
    for _ in range(5):
        write(proxy, b"x")
    assert await offsets.stable(Question({P0: 5})) == {P0: 5}
    proxy.brokers.topics["t"].partitions[0].log.truncate(0)
    write(proxy, b"x", 2)


async def test_a_log_recreated_is_read_from_its_bound() -> None:
    log = Log(bounds={P0: 0})
    async with stable_offsets(log) as (proxy, offsets):
        await recreate(proxy, offsets)
        assert await offsets.stable(Question({P0: 1}, receded={P0})) == {P0: 0}


async def test_what_is_reported_while_a_log_is_asked_for_its_end_does_not_make_it_a_lost_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stable_offsets(Log()) as (proxy, offsets):
        write(proxy, b"x")
        assert await offsets.stable(Question({P0: 1})) == {P0: 1}
        ask = offsets._leaders.ask

        async def grows_meanwhile(*question: Any) -> Any:
            answer = await ask(*question)
            write(proxy, b"x")
            offsets.told.looked_at(Row(P0, 1, 2, 2))
            return answer

        monkeypatch.setattr(offsets._leaders, "ask", grows_meanwhile)
        # Another reader's response, which is older, says 0.
        assert await offsets.stable(Question({P0: 0}, receded={P0})) == {P0: 2}


async def test_a_log_whose_beginning_was_deleted() -> None:
    log = Log(bounds={P0: 0})
    async with stable_offsets(log) as (proxy, offsets):
        write(proxy, b"x", 1)
        write(proxy, b"x")
        write(proxy, b"x", 2)
        proxy.brokers.topics["t"].partitions[0].log.delete_before(1)
        assert await offsets.stable(Question({P0: 3})) == {P0: 2}


async def test_what_can_not_be_read_is_not_known() -> None:
    log = Log(bounds={("no-such", 0): 0, P0: 0})
    async with stable_offsets(log) as (proxy, offsets):
        write(proxy, b"x")
        assert await offsets.stable(Question({("no-such", 0): 5, P0: 1})) == {("no-such", 0): None, P0: 1}


async def test_nothing_is_known_if_the_transaction_log_can_not_be_read() -> None:
    async def fails() -> None:
        await trio.lowlevel.checkpoint()
        raise RemoteProtocolError("no")

    async with proxied() as proxy:
        offsets = StableOffsets(proxy.cluster, proxy.config, proxy.stats.retries, Log(), Log().bound, fails)
        assert await offsets.stable(Question({P0: 5})) == {P0: None}
        offsets.close()


def v2(offset: int, records: int = 1, epoch: int = -1) -> bytes:
    """A batch of nobody, or of a transaction."""
    stamp = {"producer_id": PID, "producer_epoch": epoch, "base_sequence": 0} if epoch >= 0 else {}
    rows = [Record(number, NOW, None, b"x") for number in range(records)]
    return bytes(build_batch(rows, base_offset=offset, **stamp))


def old(offset: int, records: int, codec: int = compression.NONE) -> bytes:
    return message_set([(NOW, None, b"x")] * records, 1, codec, offset)


@pytest.mark.parametrize(
    ("position", "batches", "end", "found"),
    [
        (0, [v2(0), v2(1)], 2, 2),
        (0, [v2(0), v2(1, 2, epoch=2)], 4, 1),
        (3, [v2(0, 3, epoch=2), v2(3, 3)], 6, 6),  # undecided, but all before the position
        (2, [v2(0, 3, epoch=2)], 3, 2),
        (1, [v2(0, 3), v2(3, epoch=2)], 4, 3),
        (0, [v2(0, 3)], 2, 2),
        (0, [old(0, 3), v2(3, epoch=2)], 4, 3),
        (1, [old(0, 3, compression.GZIP), v2(3, epoch=2)], 4, 3),
        (1, [old(0, 2), old(2, 2, compression.GZIP)], 4, 4),
    ],
)
def test_how_far_batches_are_decided(position: int, batches: Sequence[bytes], end: int, found: int) -> None:
    scan = module._Scan(P0, position, end, Log())
    data = b"".join(batches)
    assert scan.take(data + v2(9)[:-1]) == len(data)
    assert (scan.position, scan.wish) == (found, None)


def test_no_more_is_examined_than_was_asked_for() -> None:
    log = Log()
    scan = module._Scan(P0, 0, 1, log)
    assert scan.take(v2(0) + v2(1, epoch=2)) == len(v2(0))
    assert not log.stopped


async def test_a_hint_is_what_is_announced_and_nothing_is_read_for_it() -> None:
    async with stable_offsets(Log(bounds={P0: 2, P1: 7})) as (proxy, offsets):
        for place in (P0, P1):
            assert await offsets.stable(Question({place: 1})) == {place: 1}
        assert await offsets.stable(Question({}, hints={P0: 5, P1: 5})) == {P0: 2, P1: 5}
        assert proxy.stats.retries.readback_bytes == 0


async def test_a_recreated_log_is_read_from_its_bound_also_after_it_has_grown_as_long() -> None:
    log = Log(bounds={P0: 0})
    async with stable_offsets(log) as (proxy, offsets):
        await recreate(proxy, offsets)
        assert await offsets.stable(Question({}, hints={P0: 1}, receded={P0})) == {P0: None}
        for _ in range(5):
            write(proxy, b"x")
        assert await offsets.stable(Question({P0: 6})) == {P0: 0}


async def test_an_end_that_is_not_known_does_not_make_a_log_a_lost_one() -> None:
    """Else the offset reported would fall."""

    def refuse(answer: Any) -> None:
        (row,) = answer.topics[0].partitions
        row.error_code, row.offset = ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1

    async with stable_offsets(Log()) as (proxy, offsets):
        assert await offsets.stable(Question({P0: 5})) == {P0: 5}
        proxy.brokers.control(ApiKey.LIST_OFFSETS, lambda _: Edit(refuse))
        assert await offsets.stable(Question({P0: 3}, receded={P0})) == {P0: 5}


@pytest.mark.parametrize("version", [4, 5])
async def test_only_a_leader_that_knows_the_high_watermark_says_that_a_log_was_cut(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-207, since version 5 of ListOffsets: a leader before that answers with what it has learnt so far."""
    call = BrokerClient.call

    async def serves(self: BrokerClient, request: Any, answer: Any, versions: Any, **options: Any) -> Any:
        if versions[0] > version:
            raise NoCommonVersion("ListOffsets")
        return await call(self, request, answer, versions, **options)

    async with stable_offsets(Log()) as (proxy, offsets):
        write(proxy, b"x")
        assert await offsets.stable(Question({P0: 5})) == {P0: 5}
        monkeypatch.setattr(BrokerClient, "call", serves)
        assert await offsets.stable(Question({P0: 1}, receded={P0})) == {P0: 1 if version == 5 else 5}


@pytest.mark.parametrize(("remembered", "again"), [(1, [2, 0]), (2, [2, 2])])
async def test_a_look_that_was_given_up_continues_where_it_was(
    remembered: int, again: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_READ_BYTES", 2000)
    monkeypatch.setattr(module, "_MOST_SCANNED", remembered)
    async with stable_offsets(Log(bounds={P0: 0, P1: 0})) as (proxy, offsets):
        asked: list[int] = []
        stuck = trio.Event()

        def note(call: Call) -> Drop | None:
            asked.append(call.request.topics[0].partitions[0].fetch_offset)
            if not asked[-1] or stuck.is_set():
                return None
            stuck.set()
            return Drop(apply=False)

        proxy.brokers.control(ApiKey.FETCH, note)
        for place in (P0, P1):
            stuck = trio.Event()
            for _ in range(4):
                write(proxy, bytes(800), partition=place[1])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(offsets.stable, Question({place: 4}))
                await stuck.wait()
                nursery.cancel_scope.cancel()
        assert asked == [0, 2, 0, 2]
        for place, first in zip((P1, P0), again, strict=True):
            asked.clear()
            assert await offsets.stable(Question({place: 4})) == {place: 4}
            assert asked[0] == first


async def test_a_look_that_was_given_up_says_nothing_of_a_log_that_is_shorter() -> None:
    async with stable_offsets(Log(bounds={P0: 0})) as (proxy, offsets):
        offsets._remember(P0, 5)
        write(proxy, b"x", 2)
        assert await offsets.stable(Question({P0: 1})) == {P0: 0}


async def test_what_readers_found_decided_need_not_be_read() -> None:
    async with stable_offsets(Log(bounds={P0: 0})) as (proxy, offsets):
        assert await offsets.stable(Question({P0: 0})) == {P0: 0}
        for _ in range(4):
            write(proxy, bytes(1000))
        offsets.told.looked_at(Row(P0, 0, 3, 4))
        assert await offsets.stable(Question({P0: 4})) == {P0: 4}
        assert 0 < proxy.stats.retries.readback_bytes < 2000


@pytest.mark.idle_clock
async def test_what_can_be_read_only_in_part_is_not_known() -> None:
    async with stable_offsets(Log(bounds={P0: 0}), upstream_request_timeout_ms=100) as (proxy, offsets):
        write(proxy, b"x")
        assert await offsets.stable(Question({P0: 2})) == {P0: None}
