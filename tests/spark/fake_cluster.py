"""A fake cluster in a thread of its own, for the blocking clients of Spark's processes."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import trio

from kproxy.codec.messages import ApiKey
from kproxy.proxy.routing import Address
from kproxy.spark.kafka_cluster import KafkaCluster
from kproxy.spark.security_options import PLAIN_TEXT, Security
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.fake_broker import ClusterConfig, FakeServer, SaslRules, open_fake_cluster

_SECONDS = 20.0


@dataclass(frozen=True)
class Fake:
    """A running fake cluster."""

    server: FakeServer
    bootstrap: str
    token: trio.lowlevel.TrioToken

    def do(self, action: Callable[[FakeServer], Any]) -> Any:
        """What ``action`` returns (awaited, if that is what it takes), run in the cluster's thread."""

        async def run() -> Any:
            result = action(self.server)
            return await result if hasattr(result, "__await__") else result

        return trio.from_thread.run(run, trio_token=self.token)

    def on(self, key: ApiKey, function: Callable[[Any], Any], times: int | None = None) -> None:
        """Registers a fault."""
        self.do(lambda server: server.cluster.control(key, function, times=times))

    def client(self) -> ClusterClient:
        return ClusterClient(self.bootstrap)

    def addresses(self) -> list[Address]:
        places = [place.split(":") for place in self.bootstrap.split(",")]
        return [Address(host, int(port)) for host, port in places]

    def cluster(
        self, *, patience_s: float = _SECONDS, timeout_s: float = _SECONDS, security: Security = PLAIN_TEXT
    ) -> KafkaCluster:
        return KafkaCluster(
            self.addresses(), client_id="test", request_timeout_s=timeout_s, patience_s=patience_s, security=security
        )


@contextlib.contextmanager
def fake_cluster(brokers: int = 1, sasl: SaslRules | None = None, *, creates_topics: bool = True) -> Iterator[Fake]:
    config = ClusterConfig(sasl=sasl, auto_create_topics=creates_topics)
    started: queue.SimpleQueue[tuple[FakeServer, trio.lowlevel.TrioToken, trio.CancelScope]] = queue.SimpleQueue()

    async def serve() -> None:
        with trio.CancelScope() as scope:
            async with open_fake_cluster(brokers, config=config) as server:
                started.put((server, trio.lowlevel.current_trio_token(), scope))
                await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(serve,), daemon=True)
    thread.start()
    server, token, scope = started.get(timeout=_SECONDS)
    try:
        yield Fake(server, server.bootstrap, token)
    finally:
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(scope.cancel)
        thread.join(_SECONDS)
