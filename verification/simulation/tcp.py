"""The behaviour of kernels: acknowledgements, retransmissions, and when they give a connection up.

As Linux does it. An acknowledgement is a packet of its own: it is delayed (40 ms as a rule, up to 200 ms), rides on
data or a FIN that goes back meanwhile, and may be lost. It says that the peer's kernel has the bytes, not that its
program has read them; bytes for which the receive buffer has no room are not acknowledged before the program reads. A
packet that is lost is sent again after a time that doubles. An end with unacknowledged data sends no keepalive probes:
without TCP_USER_TIMEOUT it stays for a quarter of an hour.
"""

from collections import deque
from random import Random
from typing import Final, NamedTuple

#: Seconds after which an end without unacknowledged data gives up a peer of which it hears nothing: keepalive, as
#: kproxy sets it (10 s, and four probes 5 s apart).
KEEPALIVE_SECONDS: Final = 30.0
#: Seconds after which an end gives up what is not acknowledged, without TCP_USER_TIMEOUT (``tcp_retries2``).
PATIENCE_SECONDS: Final = 924.0
#: Seconds from one keepalive probe to the next.
PROBE_SECONDS: Final = 5.0
_FIRST_RETRANSMISSION: Final = 0.2
_LAST_BACKOFF: Final = 120.0
#: Seconds from one SYN to the next, doubled each time.
_FIRST_SYN: Final = 1.0


class AckHabits(NamedTuple):
    """The habits of a kernel in acknowledging."""

    #: Seconds, one of these.
    delays: tuple[float, ...] = (0.0, 0.0, 0.04, 0.04, 0.2)
    #: The share that is lost, in [0, 1].
    lost: float = 0.02


USUAL: Final = AckHabits()


def retransmission(since: float, round_trip: float, after: float) -> float:
    """The time at which a packet first sent at ``since`` is first sent again at or after ``after``, in seconds."""
    wait = max(_FIRST_RETRANSMISSION, 2 * round_trip)
    time = since
    while time < after:
        time += wait
        wait = min(2 * wait, _LAST_BACKOFF)
    return time


def syn_after(since: float, after: float) -> float:
    """The time of the first try, at or after ``after``, of a connection that was begun at ``since``, in seconds."""
    wait, time = _FIRST_SYN, since
    while time < after:
        time, wait = time + wait, 2 * wait
    return time


class Acknowledgements:
    """The bytes of one direction that the writer's kernel knows to have arrived."""

    def __init__(self, rng: Random, habits: AckHabits) -> None:
        """``rng`` decides how late each is."""
        self._rng = rng
        self._habits = habits
        #: In flight: when each arrives, and the position up to which it says that all has arrived.
        self._coming: deque[tuple[float, int]] = deque()
        #: When the bytes up to a position were first sent.
        self._sent: deque[tuple[float, int]] = deque()
        #: Bytes that are acknowledged, and when the last of them were, by trio's clock.
        self.position = 0
        self.progress_at = 0.0

    def sent(self, now: float, position: int) -> None:
        """Records that bytes up to a position are sent."""
        self._sent.append((now, position))

    def settle(self, now: float) -> None:
        """Takes what has arrived by now."""
        coming = self._coming
        while coming and coming[0][0] <= now:
            self.progress_at, self.position = coming.popleft()
        sent = self._sent
        while sent and sent[0][1] <= self.position:
            sent.popleft()

    def delay(self, round_trip: float) -> float:
        """Seconds until the reader's kernel acknowledges; a lost one is repeated when the bytes are sent again."""
        delay = self._rng.choice(self._habits.delays)
        lost = self._habits.lost
        if lost and self._rng.random() < lost:
            delay += max(_FIRST_RETRANSMISSION, 2 * round_trip) + round_trip
        return delay

    def comes(self, at: float, position: int) -> None:
        """Sends one that arrives at ``at``; those that arrive after it are of no more use."""
        coming = self._coming
        while coming and coming[-1][0] >= at:
            coming.pop()
        if not coming or coming[-1][1] < position:
            coming.append((at, position))

    def lose(self) -> None:
        """Loses all that are in flight."""
        self._coming.clear()

    @property
    def waiting_since(self) -> float | None:
        """The time when the oldest unacknowledged bytes were sent, or others were last acknowledged after that.

        None if all are acknowledged. As of the last ``settle``, by trio's clock.
        """
        return max(self._sent[0][0], self.progress_at) if self._sent else None
