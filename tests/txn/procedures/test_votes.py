"""Members that are prepared are asked for before they are committed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import trio

from kproxy.codec.messages import ErrorCode, Message
from kproxy.net.txn.broker import broker_side
from kproxy.net.txn.broker.broker_requests import BrokerRequests
from kproxy.txn.prepared_parts import EVERYTHING, DecisionScope
from kproxy.txn.procedures.broker_protocol import Protocol
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.view_values import BrokerTransaction
from tests.net.txn.broker.native_stage import TIMEOUT_MS, TOPIC, Client, Kproxy, Stage, stage
from tests.net.txn.log_harness import PATIENCE
from tests.txn.bodies import claim, member, native_member, prepare, producer

P0 = producer(100, 0)
M, N = producer(200, 0), producer(201, 0)
PLACE = (TOPIC, 0)


@dataclass
class Scene:
    """A member's transaction at the broker, which is open and has a record."""

    stage: Stage
    kproxy: Kproxy
    client: Client
    native: BrokerTransaction

    async def check(self, *records: Message, also: DecisionScope = EVERYTHING) -> None:
        view = IdView("id")
        for offset, body in enumerate((claim(1, P0), *records)):
            assert view.apply(body, LogPosition(offset, self.stage.now))
        await self.kproxy.side.votes(self._now_ms).check(view, also)

    async def _now_ms(self, transactional_id: str) -> float:
        return self.stage.now + 1

    async def refused(self, *records: Message) -> str:
        with pytest.raises(TxnError) as caught:
            await self.check(*records)
        assert caught.value.error_code is ErrorCode.TRANSACTION_ABORTABLE
        return caught.value.message

    def joined(self) -> tuple[Message, Message]:
        return native_member(1, P0, M, 5, "m", self.native), prepare(5, M, [PLACE])


@asynccontextmanager
async def opened(level: int = 2) -> AsyncIterator[Scene]:
    async with stage(level) as cast:
        kproxy = await cast.kproxy()
        client = Client(kproxy, "slot")
        await client.init()
        await client.write("1")
        requests = BrokerRequests(kproxy.cluster, "slot", 5.0)
        told = await requests.describe()
        assert told is not None
        client.producer = type(client.producer)(told.producer_id, told.producer_epoch)
        yield Scene(
            cast, kproxy, client, BrokerTransaction("slot", client.producer, level=level, timeout_ms=TIMEOUT_MS)
        )


async def test_who_is_open_and_has_time_may_be_committed() -> None:
    async with opened() as scene:
        await scene.check(*scene.joined())


async def test_what_the_broker_has_ended_may_not() -> None:
    async with opened() as scene:
        scene.stage.server.cluster.transactional_ids["slot"].fence()
        told = await scene.refused(*scene.joined())
        assert "member m can't be committed any more" in told
        assert "slot" in told


async def test_nor_where_its_end_has_kept_the_epoch() -> None:
    async with opened(level=1) as scene:
        requests = BrokerRequests(scene.kproxy.cluster, "slot", 5.0)
        assert await requests.end(scene.native.producer, Protocol.of(1), committed=False) is None
        await scene.kproxy.cluster.refresh()
        assert "CompleteAbort" in await scene.refused(*scene.joined())


async def test_nothing_may_be_while_the_brokers_are_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as scene:
        await scene.kproxy.cluster.refresh()

        async def fail(*_: object) -> None:
            raise OSError("unreachable")

        monkeypatch.setattr(scene.kproxy.cluster, "versions", fail)
        with pytest.raises(TxnError) as caught:
            await scene.check(*scene.joined())
        assert caught.value.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_many_may_be_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_side, "_VOTES", 1)
    async with opened() as scene:
        with trio.fail_after(PATIENCE):
            await scene.check(*scene.joined(), native_member(1, P0, N, 6, "n", scene.native), prepare(6, N, [PLACE]))


@pytest.mark.parametrize("newer", [31, -1], ids=["lower at the broker", "higher at the broker"])
async def test_another_epoch_is_another_transaction(newer: int) -> None:
    async with opened() as scene:
        former = scene.native.producer
        scene.native = scene.native._replace(producer=former._replace(epoch=former.epoch + newer))
        assert "Ongoing" in await scene.refused(*scene.joined())


async def test_an_id_that_the_broker_has_forgotten_is_lost() -> None:
    async with opened() as scene:
        scene.native = scene.native._replace(transactional_id="other")
        assert "unknown" in await scene.refused(*scene.joined())


async def test_who_has_less_than_a_tenth_of_its_time_left_may_not() -> None:
    async with opened() as scene:
        owner = scene.stage.server.cluster.transactional_ids["slot"]
        owner.began_ms -= TIMEOUT_MS * 88 // 100
        await scene.check(*scene.joined())
        owner.began_ms -= TIMEOUT_MS * 25 // 1000
        assert "aborts slot" in await scene.refused(*scene.joined())


async def test_who_is_not_named_or_has_written_nothing_is_not_asked_for() -> None:
    async with opened() as scene:
        scene.stage.server.cluster.transactional_ids["slot"].fence()
        await scene.check(
            *scene.joined(), member(1, P0, N, 6, "n"), prepare(6, N, [PLACE]), also=DecisionScope(None, ("n",))
        )
        await scene.check(scene.joined()[0], prepare(5, M))
        await scene.check(prepare(1, P0, [PLACE]))  # of the owner, whose data are not at the broker


async def test_where_brokers_do_not_describe_only_the_time_counts() -> None:
    async with opened() as scene:
        broker = await scene.kproxy.cluster.coordinators.find("slot", 1)
        assert broker is not None
        await scene.kproxy.cluster.refresh()
        served = await scene.kproxy.cluster.versions(broker)
        broker.versions = {key: row for key, row in served.items() if key != 65}
        scene.native = scene.native._replace(transactional_id="other")
        await scene.check(*scene.joined())
        scene.native = scene.native._replace(timeout_ms=0)
        assert "aborts other" in await scene.refused(native_member(1, P0, M, 5, "m", scene.native), scene.joined()[1])
