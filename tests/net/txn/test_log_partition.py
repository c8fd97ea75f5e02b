"""How far a partition of the log has been applied, and who is woken when."""

from collections.abc import Sequence

import trio
import trio.testing

from kproxy.codec.batch import Record, build_batch
from kproxy.net.txn.log_batches import LogBatch, read_batches
from kproxy.net.txn.log_partition import NOTHING, LogPartition
from kproxy.proxy.routing import Address
from tests.net.txn.log_harness import Sink


def batches(*values: bytes, first: int = 0, leader_epoch: int = 0) -> Sequence[LogBatch]:
    """One batch for each value."""
    found = []
    for offset, value in enumerate(values, first):
        data = build_batch([Record(0, 0, b"k", value)], base_offset=offset, partition_leader_epoch=leader_epoch)
        found += read_batches(memoryview(data), 0)[0]
    return found


def test_nothing_is_known_of_a_new_partition() -> None:
    """Brokers take -1, and nothing else, for an epoch that is not known."""
    part = LogPartition(0, Sink())
    assert (part.leader, part.leader_epoch, part.fetched_epoch) == (None, -1, -1)
    assert (part.position, part.log_start, part.restarts, part.fed) == (NOTHING, 0, 0, 0) == (-1, 0, 0, 0)
    assert (part.stale, part.damaged_at) == (True, None)
    part.ask(Address("host", 9092), 3)
    assert (part.leader, part.leader_epoch) == (Address("host", 9092), 3)


async def test_who_waits_is_woken_by_what_it_waits_for_and_by_a_new_reading() -> None:
    sink, woken = Sink(), list[int]()
    part = LogPartition(3, sink)
    part.restart(5)

    async def wait(offset: int) -> None:
        await part.wait(offset)
        woken.append(offset)

    async with trio.open_nursery() as nursery:
        for offset in (6, 7, 8, 9):
            nursery.start_soon(wait, offset)
        with trio.move_on_after(0):
            await part.wait(7)  # has gone when the record comes
        await trio.testing.wait_all_tasks_blocked()
        part.apply(batches(b"a", b"b", first=5, leader_epoch=4))
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(woken) == [6, 7]
        assert (part.position, part.fetched_epoch, sink.values(3), sink.ends) == (7, 4, [b"a", b"b"], {3: 7})
        part.apply(batches(b"c", first=7, leader_epoch=6))
        assert (part.position, part.fetched_epoch) == (8, 6)
        part.restart(2)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(woken) == [6, 7, 8, 9]
    assert (part.restarts, part.fetched_epoch, sink.restarts) == (2, -1, [(3, 5), (3, 2)])
    assert sink.values(3) == []
    assert not part._waiting, "nothing is kept of those that have been woken, or have gone"


def test_the_lag_is_what_is_known_to_be_there_and_not_applied() -> None:
    part = LogPartition(0, Sink())
    assert part.lag == 0
    part.end = 7
    assert part.lag == 7
    part.restart(5)
    assert part.lag == 2
    part.restart(9)
    assert part.lag == 0


def test_what_was_applied_before_a_partition_must_be_read_again_is_no_evidence() -> None:
    """The log was replaced, or cut below the position: records before the asked offset may be others."""
    part = LogPartition(0, Sink())
    assert not part.has(0)
    part.restart(5)
    assert (part.has(5), part.has(6)) == (True, False)
    part.stale = True
    assert not part.has(5)
    part.restart(3)
    assert (part.has(3), part.has(5)) == (True, False)
