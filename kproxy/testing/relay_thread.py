"""Fault relays for callers that block."""

import threading
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

import trio

from kproxy.testing.relay import FaultRelay

_Result = TypeVar("_Result")


class RelayThread:
    """Relays at work in a thread of their own, for callers that block; a context manager.

    `faults` may be set from any thread; methods of the relays go through `call`.
    """

    def __init__(self, relays: Sequence[FaultRelay]) -> None:
        self.relays = relays
        self._thread = threading.Thread(target=trio.run, args=(self._main,), name="fault relays")
        self._listening = threading.Event()
        self._error: OSError | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope = trio.CancelScope()

    def __enter__(self) -> Self:
        """Start the relays. :raises OSError: a port is taken."""
        self._thread.start()
        self._listening.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        self.call(self._scope.cancel)
        self._thread.join()

    def call(self, function: Callable[[], _Result]) -> _Result:
        """Call a function in the relays' thread and return what it returns."""
        return trio.from_thread.run_sync(function, trio_token=self._token)

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    for relay in self.relays:
                        await nursery.start(relay.serve)
                    self._listening.set()
        except* OSError as group:
            self._error = OSError(str(group.exceptions))
        finally:
            self._listening.set()
