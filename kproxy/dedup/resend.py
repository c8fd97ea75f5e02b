"""The next step for a track with batches that were not acknowledged: one step at a time, in order.

The shell calls ``next_step``, does what it says, reports the response with ``Track.answered`` or ``Track.lost`` (of a
fence: ``Track.fenced``), and asks again until nothing is left. Nothing new may be sent on the track meanwhile.

A copy of a batch whose outcome is open may come at any time. While the broker remembers the producer, sending the batch
again as it stands does no harm. Where it does not, or where the sequence has to go to another batch, the producer's
epoch is fenced first, and what the log holds then is final.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final, TypeAlias

from kproxy.dedup.lanes import Send, Track
from kproxy.dedup.produce_outcome import ProduceOutcome
from kproxy.errors import FencedByAnother

#: What was taken longer ago is not sent again on trust: the broker may have forgotten the producer.
OLD_S: Final = 300.0
#: A broker forgets a producer by its records' timestamps (producer.id.expiration.ms, a day, at least half of it left).
OLD_STAMP_S: Final = 12 * 3600.0

_MAX_TIMESTAMP: Final = Struct(">35xq")


@dataclass(frozen=True, slots=True)
class Resend:
    """Send this batch, alone, to the partition's leader."""

    send: Send
    reason: str
    #: Whether to wait for the back-off time first.
    wait: bool


@dataclass(frozen=True, slots=True)
class Fence:
    """Fence the track's epoch + 1 at the partition's leader, read what the log holds, and call ``Track.fenced``."""

    reason: str


Step: TypeAlias = Resend | Fence | None


def next_step(track: Track, now: float) -> Step:
    """The next thing to do; None when all are settled. Refusals are settled and epochs bumped on the way.

    ``now``: seconds since the epoch. LocalProtocolError if the lease reserves no further epoch; FencedByAnother if the
    broker knows a higher one.
    """
    while track.sends:
        head = track.sends[0]
        if head.outcome is ProduceOutcome.SUPERSEDED:
            raise FencedByAnother(
                f"producer id {track.producer_id}, epoch {track.epoch} was fenced by another", head.taken_at
            )
        if head.outcome is ProduceOutcome.REFUSED:
            if track.may_be_written:
                return Fence("refused")
            track.refuse(head, head.error_code)
        elif head.outcome is ProduceOutcome.OUT_OF_SEQUENCE:
            # Nothing before it is held, so the broker lost the producer's state (KIP-360).
            if track.ever_open:
                return Fence("state_lost")
            track.bump()
            head.outcome = None
            return Resend(head, "state_lost", wait=True)
        else:
            return Fence("old") if head.ever_open and _old(head, now) else _resend(head)
    return None


def _old(send: Send, now: float) -> bool:
    """Whether a broker that has a batch may have forgotten so: then sending it again would write it again."""
    stamped_ms: int = _MAX_TIMESTAMP.unpack_from(send.batch)[0]
    return max(send.taken_at, send.track.fenced_at) < now - OLD_S or stamped_ms / 1000 < now - OLD_STAMP_S


def _resend(head: Send) -> Resend:
    if head.outcome is None:
        return Resend(head, "behind_a_failure", wait=False)
    return Resend(head, head.outcome.name.lower(), wait=head.outcome is not ProduceOutcome.FENCED)
