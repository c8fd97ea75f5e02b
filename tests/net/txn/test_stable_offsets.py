"""How far partitions are decided: announced bounds, and what the logs hold after them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from kproxy.codec.batch import Record, build_batch
from kproxy.errors import RemoteProtocolError
from kproxy.net.txn.stable_offsets import StableOffsets
from kproxy.txn.last_stable import Question, Row
from kproxy.txn.verdict import Verdict
from tests.net.harness import Proxied, proxied
from tests.net.txn.test_waits import NOW, PID, Log, write


@asynccontextmanager
async def stable_offsets(log: Log) -> AsyncIterator[tuple[Proxied, StableOffsets]]:
    async def read_to_end() -> None:
        await trio.lowlevel.checkpoint()

    async with proxied() as proxy:
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
        write(proxy, b"x", 2)
        assert await offsets.stable(Question({P0: 51})) == {P0: 50}
        assert proxy.stats.retries.readback_bytes < read + 1000


async def test_a_log_recreated_is_read_from_its_bound() -> None:
    log = Log(bounds={P0: 0})
    async with stable_offsets(log) as (proxy, offsets):
        for _ in range(5):
            write(proxy, b"x")
        assert await offsets.stable(Question({P0: 5})) == {P0: 5}
        proxy.brokers.topics["t"].partitions[0].log.truncate(0)
        write(proxy, b"x", 2)
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
