"""The Kafka that the demo runs against: a real one where it is available, else the embedded fake."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from kproxy.demo.failure import DemoFailed
from kproxy.demo.fake import running_fake
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import DEFAULT_VERSION, RealKafka
from kproxy.testing.tools import Unavailable


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
