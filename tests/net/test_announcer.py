"""The whole program announces itself, and takes that back when it ends in good order."""

import signal

import trio

from kproxy.config import ExitCode
from kproxy.net.fleet_log import TOPIC
from kproxy.net.lane_topic import partition_of
from kproxy.proxy.announcements import decode_value
from kproxy.testing.fake_broker import FakeServer, open_fake_cluster
from tests.net.harness import eventually, values_in
from tests.support.processes import kproxy

NAME = "alone"
PATIENCE = 90.0


def announced(fake: FakeServer) -> list[bytes | None]:
    """The entries of the instance, oldest first."""
    if TOPIC not in fake.cluster.topics:
        return []
    return values_in(fake.cluster, TOPIC, partition_of(NAME, len(fake.cluster.topics[TOPIC].partitions)))


async def test_it_announces_itself_and_leaves() -> None:
    flags = (
        "--instance-id",
        NAME,
        "--fleet-announce-interval-ms",
        "100",
        "--advertised-address",
        "kproxy.example:9092",
    )
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, *flags) as running:
        await eventually(lambda: len(announced(fake)) > 1, PATIENCE)
        first = announced(fake)[0]
        assert first is not None
        made = decode_value(NAME, first)
        assert (made.listen, made.interval_ms) == ("kproxy.example:9092", 100)
        assert made.http == (await running.said("listening"))["http"]
        running.process.send_signal(signal.SIGTERM)
        with trio.fail_after(PATIENCE):
            assert await running.process.wait() == ExitCode.OK
        assert announced(fake)[-1] is None


async def test_it_announces_itself_by_default() -> None:
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, "--instance-id", NAME) as running:
        await eventually(lambda: bool(announced(fake)), PATIENCE)
        first = announced(fake)[0]
        assert first is not None
        assert decode_value(NAME, first).interval_ms == 60_000
        await running.said("ready")


async def test_it_is_silent_if_asked_to_be() -> None:
    flags = ("--fleet-announce-interval-ms", "0")
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, *flags) as running:
        await running.said("ready")
        running.process.send_signal(signal.SIGTERM)
        with trio.fail_after(PATIENCE):
            assert await running.process.wait() == ExitCode.OK
        assert TOPIC not in fake.cluster.topics
