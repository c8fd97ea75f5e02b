"""What the entries of leases say of batches in doubt, and when they say it again."""

from math import inf

import pytest
import trio

from kproxy.dedup.identity import Identity
from kproxy.dedup.lane_record import LaneKey, LaneRecord, decode_key, decode_value
from kproxy.dedup.listed import InDoubt, ListedBatch
from kproxy.dedup.producer_ids import KPROXY_BIT
from kproxy.testing.fake_broker import FakeServer, open_fake_cluster
from tests.net.lane_harness import ONE, TWO, entries, lanes

pytestmark = pytest.mark.idle_clock


def batch(number: int) -> ListedBatch:
    return ListedBatch((b"t", 0), KPROXY_BIT | 1, 0, number, number, 1_000, clean=False)


class Doubts:
    """What is in doubt of producers, as the retry ledgers know it."""

    def __init__(self) -> None:
        self.now: dict[Identity, tuple[ListedBatch, ...]] = {}
        self.at_ms = 5_000_000_000_000

    def __call__(self, identity: Identity) -> InDoubt:
        return InDoubt(self.at_ms, self.now.get(identity, ()))


def rows(fake: FakeServer) -> list[LaneRecord]:
    """All entries in the log."""
    return [decode_value(decode_key(key), value) for _, key, value in entries(fake.cluster) if value]


def told(fake: FakeServer) -> list[tuple[bool, int, tuple[ListedBatch, ...]]]:
    """Of all entries in the log: whether the lane was given back, the time of the list, and the list."""
    found = rows(fake)
    return [(one.returned, one.in_doubt.at_ms, one.in_doubt.batches) for one in found if one.in_doubt is not None]


async def test_each_entry_says_what_is_in_doubt_and_a_later_one_is_newer() -> None:
    async with open_fake_cluster(1) as fake, lanes(fake.bootstrap) as (kproxy, made):
        made.in_doubt = doubts = Doubts()
        first = await made.lease(ONE)
        doubts.now[ONE] = (batch(1),)
        made.give_back(first)
        second = await made.lease(ONE)
        assert told(fake) == [
            (False, doubts.at_ms, ()),
            (True, doubts.at_ms + 1, (batch(1),)),
            (False, doubts.at_ms + 2, (batch(1),)),
        ]
        await made.lease(TWO)
        assert told(fake)[3:] == [(False, doubts.at_ms + 3, ())]
        made.give_back(second)
        await kproxy.log.written()
        assert kproxy.log.is_written


async def test_what_changes_is_said_again_under_the_same_lane_and_nothing_else() -> None:
    async with open_fake_cluster(1) as fake, lanes(fake.bootstrap) as (kproxy, made):
        made.in_doubt = doubts = Doubts()
        lane = await made.lease(ONE)
        for identities in ((), (ONE,)):
            made.list_again(identities)
            await kproxy.log.written()
            assert len(told(fake)) == 1
        doubts.now[ONE] = (batch(1),)
        recorded = [row.recorded_ms for row in rows(fake)]
        made.list_again((ONE, TWO))
        made.list_again((ONE,))
        await kproxy.log.written()
        assert [row[::2] for row in told(fake)] == [(False, ()), (False, (batch(1),))]
        assert kproxy.log.usable_until(LaneKey("me", lane.producer_id)) < inf, "it is renewed still"
        made.give_back(lane)
        doubts.now[ONE] = (batch(2),)
        made.list_again(())
        doubts.now[ONE] = ()
        made.list_again(())
        made.list_again(())
        await kproxy.log.written()
        assert [row[::2] for row in told(fake)][2:] == [(True, (batch(1),)), (True, (batch(2),)), (True, ())]
        recorded += [row.recorded_ms for row in rows(fake)[1:]]
        assert (len(set(recorded[:2])), len(set(recorded[2:]))) == (1, 1)


async def test_a_lane_whose_entry_says_what_is_in_doubt_goes_to_nobody_else() -> None:
    async with open_fake_cluster(1) as fake, lanes(fake.bootstrap, retry_window_ms=1000) as (_, made):
        made.in_doubt = doubts = Doubts()
        await trio.sleep(1.5)
        first = await made.lease(ONE)
        doubts.now[ONE] = (batch(1),)
        made.give_back(first)
        await trio.sleep(1.5)
        other = await made.lease(TWO)
        assert other.producer_id != first.producer_id
        doubts.now[ONE] = ()
        made.list_again(())
        await trio.sleep(1.5)
        assert (await made.lease(TWO)).producer_id == first.producer_id


async def test_where_the_entry_went_to_another_producer_another_lane_says_it() -> None:
    async with open_fake_cluster(1) as fake, lanes(fake.bootstrap) as (kproxy, made):
        made.in_doubt = doubts = Doubts()
        first, second = await made.lease(ONE), await made.lease(ONE)
        doubts.now[ONE] = (batch(1),)
        made.give_back(first)
        made._pool.give_back(first)
        made._wake(first)
        doubts.now[ONE] = (batch(2),)
        made.list_again(())
        await kproxy.log.written()
        assert told(fake)[-1][::2] == (False, (batch(2),))
        key = decode_key(entries(fake.cluster)[-1][1])
        assert key.producer_id == second.producer_id


async def test_a_list_of_a_successor_is_newer_though_the_clock_was_set_back() -> None:
    async with open_fake_cluster(1) as fake:
        for hours in (0, 1):
            async with lanes(fake.bootstrap) as (kproxy, made):
                assert kproxy.log.newest_list_ms == (5_000_000_000_000 if hours else 0)
                made.in_doubt = doubts = Doubts()
                doubts.at_ms -= hours * 3_600_000
                doubts.now[ONE] = (batch(hours)._replace(since_ms=doubts.at_ms - 5),)
                await made.lease(ONE)
        first, second = told(fake)
        assert second[1] == first[1] + 1
        assert second[2][0].since_ms == second[1] - 5


async def test_what_a_former_self_had_in_doubt_is_as_old_as_it_was_then() -> None:
    async with open_fake_cluster(1) as fake:
        async with lanes(fake.bootstrap) as (_, made):
            made.in_doubt = doubts = Doubts()
            doubts.now[ONE] = (batch(1)._replace(since_ms=doubts.at_ms - 7_000),)
            await made.lease(ONE)
        async with lanes(fake.bootstrap) as (kproxy, _):
            (listed,) = kproxy.log.former_lists(ONE).values()
            assert listed.at_ms - listed.batches[0].since_ms == 7_000
            assert abs(listed.at_ms - kproxy.log.now_ms()) < 60_000
            assert kproxy.log.former_lists(TWO) == {}
