"""Faults of the network, on relays in front of a fake broker; those of processes are seen in the short run."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import pytest
import trio
import trio.testing

from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec.messages import ApiKey
from kproxy.testing.fake_broker.fake_server import open_fake_cluster
from kproxy.testing.relay import FaultRelay
from verification.chaos.link import Link, LinkLost
from verification.chaos.nemesis import Nemesis
from verification.chaos.schedule import Step

if TYPE_CHECKING:
    from verification.chaos.kproxy_process import KproxyProcess
    from verification.chaos.relayed_kafka import RelayedKafka


class NoCluster:
    """Stands for processes that a network fault must not touch."""


@asynccontextmanager
async def relayed() -> AsyncIterator[tuple[FaultRelay, Nemesis]]:
    async with open_fake_cluster() as server, trio.open_nursery() as nursery:
        host, _, port = server.bootstrap.rpartition(":")
        relay = FaultRelay((host, int(port)))
        await nursery.start(relay.serve)
        yield (
            relay,
            Nemesis(cast("RelayedKafka", NoCluster()), [cast("KproxyProcess", NoCluster())], [[relay]], [[relay]]),
        )
        nursery.cancel_scope.cancel()


async def ask(link: Link, seconds: float = 5.0) -> None:
    await link.call(MetadataRequest(), 0, MetadataResponse, seconds)


async def test_a_cut_ends_the_connections_that_there_are_and_no_later_one() -> None:
    async with relayed() as (relay, nemesis):
        async with await Link.open(("127.0.0.1", relay.port), "c") as link:
            await ask(link)
            await nemesis.run([Step(0.0, "client", "cut", 0, 0.0, 0.2)])
            with pytest.raises(LinkLost):
                await ask(link)
        async with await Link.open(("127.0.0.1", relay.port), "c") as another:
            await ask(another)


@pytest.mark.parametrize("fault", ["drop answers", "delay", "half-open"])
async def test_a_fault_lasts_for_its_time_and_is_healed_then(fault: str) -> None:
    async with relayed() as (relay, nemesis), trio.open_nursery() as nursery:
        nursery.start_soon(nemesis.run, [Step(0.0, "client", fault, 0, 0.2, 0.4)])
        await trio.testing.wait_all_tasks_blocked()
        assert [step.fault for step in nemesis.current] == [fault]
        faults = relay.faults
        assert faults.drop_answers or faults.answer_delays.get(ApiKey.PRODUCE) or faults.swallow_answers
        while nursery.child_tasks:
            await trio.lowlevel.checkpoint()
        assert nemesis.current == []
        assert not (faults.drop_answers or faults.answer_delays or faults.request_delays or faults.swallow_answers)
        async with await Link.open(("127.0.0.1", relay.port), "c") as link:
            await ask(link)
    assert [line.split("] ")[1] for line in nemesis.done] == [
        f"{fault} client 0 for 0.2 s",
        f"healed: {fault} client 0",
    ]


@pytest.mark.parametrize(("chance", "kept"), [(0.2, False), (0.8, True)])
async def test_a_kproxy_is_cut_off_and_then_its_connections_are_lost_or_what_was_held_arrives(
    chance: float, kept: bool
) -> None:
    async with relayed() as (relay, nemesis), await Link.open(("127.0.0.1", relay.port), "c") as link:
        await ask(link)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nemesis.run, [Step(0.0, "kproxy", "cut off", 0, 0.3, chance)])
            await trio.testing.wait_all_tasks_blocked()
            seen = relay.counts.requests[ApiKey.METADATA]
            await link.send(MetadataRequest(), 0, 5.0)
            await trio.sleep(0.1)
            assert sum(relay.counts.answers.values()) == seen
        with contextlib.nullcontext() if kept else pytest.raises(LinkLost):
            await link.receive(MetadataRequest(), 0, MetadataResponse, 5.0)
