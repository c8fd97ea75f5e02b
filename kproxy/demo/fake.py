"""The embedded fake broker, in a thread of its own: its trio loop and the demo's blocking clients do not meet."""

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import Final

import trio

from kproxy.testing.fake_broker.fake_server import open_fake_cluster

_START_SECONDS: Final = 10.0
_Started = tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]


@contextlib.contextmanager
def running_fake() -> Iterator[str]:
    """Run a fake cluster of one broker while the block lasts; gives its `host:port`."""
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
