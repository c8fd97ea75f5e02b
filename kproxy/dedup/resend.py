"""What to do next with a track whose batches did not all get through: one step at a time, in order.

The shell calls ``next_step``, does what it says, reports the answer with ``Track.answered`` or ``Track.lost``, and asks
again until nothing is left. Nothing new may be sent on the track meanwhile.
"""

from dataclasses import dataclass
from typing import TypeAlias

from kproxy.dedup.fate import Fate
from kproxy.dedup.lanes import Send, Track


@dataclass(frozen=True, slots=True)
class Resend:
    """Send this batch, alone, to the partition's leader."""

    send: Send
    reason: str
    #: Whether to wait for the back-off time first.
    wait: bool


Step: TypeAlias = Resend | None


def next_step(track: Track) -> Step:
    """The next batch to send again; None when all are settled. Refusals are settled and epochs bumped on the way.

    LocalProtocolError if the producer id has no epoch left.
    """
    while track.sends:
        head = track.sends[0]
        if head.fate is Fate.REFUSED:
            track.refuse(head, head.error_code)
        elif head.fate is Fate.OUT_OF_SEQUENCE:
            # Nothing before it is held, so the broker lost the producer's state (KIP-360). If an earlier attempt may
            # have been written, this can't be proven to be the only copy; the reason says so, for operators to watch.
            reason = "state_lost_unproven" if head.ever_open else "state_lost"
            track.bump()
            head.fate = None
            return Resend(head, reason, wait=True)
        else:
            return _resend(head)
    return None


def _resend(head: Send) -> Resend:
    if head.fate is None:
        return Resend(head, "behind_a_failure", wait=False)
    return Resend(head, head.fate.name.lower(), wait=True)
