"""A fake cluster to be looked at."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from kproxy.codec.messages import ApiKey, Message
from kproxy.config import Address, Config
from kproxy.doctor.examined import Examined
from kproxy.doctor.findings import Finding, Level
from kproxy.doctor.gather import gather
from kproxy.net.broker_sasl.sasl_networks import open_networks
from kproxy.proxy.stats import Stats
from kproxy.testing.fake_broker import Edit, FakeServer, open_fake_cluster

Look = Callable[[Examined], Iterator[Finding]]


def make_config(bootstrap: str = "kafka:9092", **options: Any) -> Config:
    places = [place.rpartition(":") for place in bootstrap.split(",")]
    servers = tuple(Address(host, int(port)) for host, _, port in places)
    return Config(
        bootstrap_servers=servers, **{"upstream_connect_timeout_ms": 2000, "fleet_announce_interval_ms": 0, **options}
    )


@asynccontextmanager
async def fake(brokers: int = 3) -> AsyncIterator[FakeServer]:
    async with open_fake_cluster(brokers) as cluster:
        yield cluster


async def examined(cluster: FakeServer, bootstrap: str | None = None, **options: Any) -> Examined:
    config = make_config(bootstrap or cluster.bootstrap, **options)
    return await gather(config, open_networks(config, Stats()).own)


def edit(cluster: FakeServer, key: ApiKey, change: Callable[[Any], None]) -> None:
    """Changes every response of one API."""

    def changed(message: Message) -> None:
        change(message)

    cluster.cluster.control(key, lambda call: Edit(changed))


def levels(look: Look, found: Examined) -> list[Level]:
    return [finding.level for finding in look(found)]


def only(look: Look, found: Examined) -> Finding:
    """The one finding of a check."""
    [finding] = look(found)
    return finding
