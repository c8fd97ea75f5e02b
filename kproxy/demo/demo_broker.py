"""The Kafka that the demo runs against: a real one where it is available, else the embedded fake."""

import contextlib
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import trio

from kproxy.demo.failure import DemoFailed
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.fake_broker.fake_server import open_fake_cluster
from kproxy.testing.kafka import DEFAULT_VERSION, RealKafka
from kproxy.testing.tools import Unavailable

_START_SECONDS: Final = 10.0
_Started = tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]


@dataclass(frozen=True)
class Broker:
    """A running broker: what to call it, its `host:port`, and why it is not the real one (empty if it is)."""

    description: str
    bootstrap: str
    excuse: str = ""

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic and wait until it can be written to."""
        with ClusterClient(self.bootstrap) as client:
            client.create_topic(name, partitions)


@contextlib.contextmanager
def open_broker(kind: str) -> Iterator[Broker]:
    """Run a broker while the block lasts: `kafka`, `fake`, or `auto` for the first of these that is available.

    Raises:
        DemoFailed: `kafka` was requested and is unavailable.
    """
    with contextlib.ExitStack() as stack:
        why = ""
        if kind != "fake":
            try:
                kafka = stack.enter_context(RealKafka())
            except Unavailable as error:
                if kind == "kafka":
                    raise DemoFailed(str(error)) from error
                why = f"No real Kafka: {str(error).splitlines()[0]}"
            else:
                yield Broker(f"A real Kafka {DEFAULT_VERSION}", kafka.bootstrap)
                return
        yield Broker("The embedded fake broker", stack.enter_context(running_fake()), why)


@contextlib.contextmanager
def running_fake() -> Iterator[str]:
    """Run a fake cluster of one broker while the block lasts; gives its `host:port`.

    In a thread of its own: its trio loop and the demo's blocking clients do not meet.
    """
    started: queue.SimpleQueue[_Started] = queue.SimpleQueue()
    thread = threading.Thread(target=trio.run, args=(_serve, started), name="fake-broker", daemon=True)
    thread.start()
    bootstrap, token, scope = started.get(timeout=_START_SECONDS)
    try:
        yield bootstrap
    finally:
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(scope.cancel)
        thread.join()


async def _serve(started: "queue.SimpleQueue[_Started]") -> None:
    with trio.CancelScope() as scope:
        async with open_fake_cluster() as cluster:
            started.put((cluster.bootstrap, trio.lowlevel.current_trio_token(), scope))
            await trio.sleep_forever()
