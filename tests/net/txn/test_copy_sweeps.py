"""When brokers are asked where partitions begin and end, so that copies can be forgotten."""

from collections.abc import Collection

import trio
import trio.testing

from kproxy.codec.topic_partition import TopicPartition
from kproxy.net.brokers.leaders import LeaderQuestion, Told
from kproxy.net.txn.copy_sweeps import CopySweeps
from tests.txn.test_old_copies import A, B, Logs


async def test_it_is_done_again_and_again(autojump_clock: trio.testing.MockClock, nursery: trio.Nursery) -> None:
    logs, asked = Logs(), []

    async def ask(places: Collection[TopicPartition], question: LeaderQuestion[int]) -> dict[TopicPartition, Told[int]]:
        asked.append(set(places))  # where they begin, then where they end
        return {place: Told(0, logs.told[place][len(asked) % 2 == 0]) for place in places}

    nursery.start_soon(CopySweeps(logs.views, ask).run)
    await trio.sleep(1)
    assert not asked
    await trio.sleep(3600)
    assert logs.knows(A)
    logs.told = {A: (10, 20), B: (10, 20)}
    await trio.sleep(3600)
    assert logs.views.copies_bytes() == 0
    count = len(asked)
    await trio.sleep(3600)
    assert len(asked) == count, "no broker is asked where there is nothing to forget"
    assert asked[0] == {A, B}
