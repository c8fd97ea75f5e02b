"""A balancer in front of kproxies: it ends TCP, loses responses, spreads connections, and can be restarted."""

import queue
import random
import threading
from functools import partial
from typing import Final, Self

from kproxy.codec.messages import ApiKey
from kproxy.testing.ports import free_ports
from kproxy.testing.relay import Drop, FaultRelay, Faults, Frame
from kproxy.testing.relay_thread import RelayThread
from verification.chaos.kproxy_process import BROKER_PORTS, KproxyProcess
from verification.network.wire import SERVER_ADDRESS

__all__ = ["Balancer"]

_SPREAD_S: Final = 0.02


class Balancer:
    """Relays on the server's end of the wire, one for each port of a kproxy; a context manager.

    :param lost: the share of responses to Produce that vanish, after which their connection ends in good order.
    """

    def __init__(self, lost: float) -> None:
        self.ports = free_ports(1 + BROKER_PORTS)
        self.bootstrap = f"{SERVER_ADDRESS}:{self.ports[0]}"
        self._faults = Faults(drop_answers=Drop(share=lost))
        self._kproxies: tuple[KproxyProcess, ...] = ()
        self._thread: RelayThread | None = None
        self._dropped = 0
        self._chance = random.Random(0)
        self._stopping = threading.Event()
        self._freezing = threading.Event()
        self._frozen: queue.SimpleQueue[KproxyProcess] = queue.SimpleQueue()
        self._spreader = threading.Thread(target=self._spread, name="balancer")

    @property
    def dropped(self) -> int:
        """How many responses were lost so far."""
        relays = () if self._thread is None else self._thread.relays
        return self._dropped + sum(relay.counts.dropped_answers[ApiKey.PRODUCE] for relay in relays)

    @property
    def requests(self) -> int:
        """How many requests of Produce have arrived at the relays that run now."""
        relays = () if self._thread is None else self._thread.relays
        return sum(relay.counts.requests[ApiKey.PRODUCE] for relay in relays)

    @property
    def options(self) -> dict[str, str]:
        """The options by which a kproxy sends its clients here."""
        return {"advertised-address": self.bootstrap}

    def serve(self, *kproxies: KproxyProcess) -> None:
        """Send each new connection to one of these from now on."""
        self._kproxies = kproxies
        self._choose()

    def restart(self) -> None:
        """End, as a process ends: its kernel closes all connections; then listen on the same ports again."""
        self._stop()
        self._start()

    def freeze_next(self, seconds: float) -> KproxyProcess:
        """Freeze the kproxy that answers the next Produce before that response is passed on, and return it.

        So the client has an open connection to it, and sends over that while nothing is answered.

        :raises TimeoutError: none is answered within so many seconds.
        """
        self._freezing.set()
        try:
            return self._frozen.get(timeout=seconds)
        except queue.Empty:
            self._freezing.clear()
            raise TimeoutError(f"no Produce was answered within {seconds:.0f} s") from None

    def __enter__(self) -> Self:
        self._start()
        self._spreader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._spreader.join()
        self._stop()

    def _start(self) -> None:
        relays = [
            FaultRelay(
                ("127.0.0.1", 0),
                host=SERVER_ADDRESS,
                port=port,
                faults=self._faults,
                seed=port,
                watch=partial(self._see, place),
            )
            for place, port in enumerate(self.ports)
        ]
        thread = RelayThread(relays)
        thread.__enter__()
        self._thread = thread
        self._choose()

    def _stop(self) -> None:
        self._dropped = self.dropped
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.__exit__()

    def _see(self, place: int, frame: Frame) -> None:
        """Freezes the kproxy that a response comes from, if that is wanted; called by the relays' thread."""
        if not (self._freezing.is_set() and frame.is_answer and frame.api_key == ApiKey.PRODUCE) or frame.dropped:
            return
        for kproxy in self._kproxies:  # without those that get no new connections any more
            if kproxy.targets[place] == frame.upstream[1]:
                self._freezing.clear()
                kproxy.pause()
                self._frozen.put(kproxy)

    def _spread(self) -> None:
        while not self._stopping.wait(_SPREAD_S):
            self._choose()

    def _choose(self) -> None:
        thread = self._thread
        if thread is None or not self._kproxies:
            return
        for place, relay in enumerate(thread.relays):
            relay.upstream = ("127.0.0.1", self._chance.choice(self._kproxies).targets[place])
