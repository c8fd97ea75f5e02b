"""The fake cluster in a thread of its own, as far from the tests as a real one."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from kproxy.testing.fake_broker import ClusterConfig, open_fake_cluster
from tests.contract.faults.levers import FakeLevers
from tests.support.patience import PATIENCE_S


@contextmanager
def fake_cluster(brokers: int, config: ClusterConfig | None = None) -> Iterator[FakeLevers]:
    """Serve a fake cluster until the block ends; what is handed out harms it."""
    started: queue.Queue[tuple[FakeLevers, Callable[[], None]]] = queue.Queue()

    async def serve() -> None:
        async with open_fake_cluster(brokers, config=config) as server:
            token = trio.lowlevel.current_trio_token()
            stop = server.nursery.cancel_scope.cancel
            started.put((FakeLevers(server, token), lambda: token.run_sync_soon(stop)))
            await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    levers, stop = started.get(timeout=PATIENCE_S)
    yield levers
    stop()
    thread.join(PATIENCE_S)
