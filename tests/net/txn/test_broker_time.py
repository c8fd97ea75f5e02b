"""The brokers' time counts, whatever this machine's clock says."""

from typing import Any, cast

import pytest
import trio
import trio.testing

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.broker_time import BrokerTime
from kproxy.net.txn.log_appender import AppendUnknown
from kproxy.net.txn.log_topic import TOPIC
from kproxy.testing.fake_broker import open_fake_cluster
from kproxy.txn.txn_error import TxnError
from tests.net.txn.instances import Cast, Client

HOUR_MS = 3_600_000


class Machine:
    """A machine whose clock says 5 s since the epoch."""

    def wall(self) -> float:
        return 5.0


def made() -> BrokerTime:
    return BrokerTime(cast(Any, Machine()))


class TestBrokerTime:
    async def test_what_a_broker_said_is_counted_on(self, autojump_clock: trio.testing.MockClock) -> None:
        time = made()
        assert time.likely_ms == 5_000
        time.observe(trio.current_time(), HOUR_MS)
        await trio.sleep(2)
        assert time.likely_ms == pytest.approx(HOUR_MS + 2_000, abs=1)
        time.observe(trio.current_time(), -1)
        assert time.likely_ms == pytest.approx(HOUR_MS + 2_000)

    async def test_a_broker_is_asked_unless_it_has_just_answered(self, autojump_clock: trio.testing.MockClock) -> None:
        time, asked = made(), list[float]()

        async def append() -> None:
            asked.append(trio.current_time())
            await trio.sleep(0.5)
            time.observe(asked[-1], HOUR_MS)

        for _ in range(2):
            assert await time.now_ms(append) == pytest.approx(HOUR_MS + 500)
        assert len(asked) == 1
        await trio.sleep(1)
        assert await time.now_ms(append) == pytest.approx(HOUR_MS + 500)
        assert len(asked) == 2

    async def test_without_an_answer_the_time_is_not_known(self) -> None:
        async def append() -> None:
            raise AppendUnknown(0, ErrorCode.NETWORK_EXCEPTION)

        with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
            await made().now_ms(append)


async def test_an_instance_whose_clock_is_an_hour_off_knows_the_brokers_time() -> None:
    broker_ms = 5 * HOUR_MS
    async with open_fake_cluster(1, clock=lambda: broker_ms) as fake, trio.open_nursery() as nursery:
        stage = Cast(fake, nursery, {})
        a, client = await stage.instance(), Client("id")
        fake.cluster.create_topic("t", 1)
        await client.init(a)
        now_ms = await a.transactions.broker_now_ms("other")
        assert broker_ms <= now_ms < broker_ms + 10_000
        said = sum(len(stage.batches(TOPIC, index)) for index in range(4))
        assert said <= 2, "the claim, and at most one record that says nothing"
        assert a.transactions.views.of("other") is None
        nursery.cancel_scope.cancel()
