"""The batches of one transaction: their sequences, which may be sent now, and what is known of each.

All are written under the transaction's own (producer id, epoch), on each partition with sequences from 0. A sequence
that was sent once keeps its content, also when it is given up: so any batch that can't be written fails the whole
transaction, which can only be aborted then. Copies are hidden by the decision, which names the one that counts.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Final, NamedTuple, TypeAlias

from kproxy.codec.batch import set_transactional, stamp
from kproxy.codec.error_codes import DOUBTFUL
from kproxy.codec.messages import ErrorCode
from kproxy.codec.sequence import advance
from kproxy.codec.topic_partition import TopicPartition
from kproxy.errors import LocalProtocolError

Batch: TypeAlias = tuple[str, int, memoryview, int]
"""Topic, partition, one whole batch of format v2, and how many records it has."""

_NOTHING: Final = memoryview(b"")
_MOST_DOUBLINGS: Final = 20
#: The number of answers that may be due to a partition that the broker does not know yet, or to any fault.
PATIENCE: Final = 10
#: The error of batches that were given up because of another one.
GIVEN_UP: Final = ErrorCode.TRANSACTION_ABORTABLE
#: The broker does not know the transaction's batches any more, or has them in another order.
STATE_LOST: Final = ErrorCode.UNKNOWN_PRODUCER_ID


class Timing(NamedTuple):
    """Seconds: the first and the longest back-off, and how long ago what is sent again may have been sent first."""

    backoff: float
    backoff_max: float
    trusted: float


class PartitionWrites(NamedTuple):
    """A transaction's data in a partition: the offset after them, and the batches that were sent more than once.

    ``copies``: (base sequence, base offset) of each, in order; a copy at another offset does not count.
    ``first_offset``: of the first record; -1 if another instance wrote it.
    """

    end_offset: int
    copies: tuple[tuple[int, int], ...]
    first_offset: int = -1


@dataclass(slots=True, eq=False)
class TxnSend:
    """One batch for one partition. Once it is settled it holds no bytes; then ``error_code`` 0: written."""

    place: TopicPartition
    batch: memoryview
    records: int
    sequence: int
    attempts: int = 0
    #: When it was sent first.
    sent_at: float = inf
    in_flight: bool = False
    #: An attempt ended without an outcome: a copy may be in the log, or may still arrive there.
    ever_open: bool = False
    #: The reason to send it again, for counters.
    reason: str = ""
    unlikely_answers: int = 0
    settled: bool = False
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1


@dataclass(slots=True)
class _Track:
    """One partition."""

    #: From the oldest whose outcome is not definite on.
    sends: deque[TxnSend] = field(default_factory=deque)
    next_sequence: int = 0
    #: A broker takes the first batch of a producer that it does not know at any sequence; no other may overtake it.
    established: bool = False
    first_offset: int = -1
    end_offset: int = -1
    copies: list[tuple[int, int]] = field(default_factory=list)
    failures: int = 0
    due_at: float = -inf

    def next_send(self, now: float, limit: int) -> TxnSend | None:
        """The batch to send now, with at most ``limit`` whose outcomes are open or unknown.

        After a failure the oldest goes alone, until all are written that were sent before.
        """
        if now < self.due_at:
            return None
        head, fresh, in_flight, failed = self.sends[0], None, False, False
        for send in islice(self.sends, limit):
            in_flight |= send.in_flight
            if not send.attempts:
                fresh = send
                break
            failed |= not (send.in_flight or send.settled)
        if failed or not self.established:
            return None if in_flight else head
        return fresh

    def take_in(self, done: TxnSend) -> bool:
        """Records where the oldest batch is; False if that is not after all before it."""
        in_order = done.base_offset >= self.end_offset
        if self.first_offset < 0:
            self.first_offset = done.base_offset
        self.end_offset = done.base_offset + done.records
        if done.attempts > 1:
            self.copies.append((done.sequence, done.base_offset))
        return in_order


class Writes:
    """The batches of one transaction. The sender reports the outcome of each attempt; late ones are ignored.

    Times are seconds of any one clock that never goes back.
    """

    def __init__(
        self, producer_id: int, epoch: int, timing: Timing, max_in_flight: int, *, is_marked: bool = False
    ) -> None:
        """``max_in_flight``: batches in flight for each partition; a broker remembers the last 5.

        ``is_marked``: each batch says that it is of a transaction, since brokers decide it.
        """
        self._is_marked = is_marked
        self._producer_id = producer_id
        self._epoch = epoch
        self._timing = timing
        self._max_in_flight = max_in_flight
        self._tracks: dict[TopicPartition, _Track] = {}
        #: Those with batches whose outcome is not definite.
        self._busy: dict[TopicPartition, _Track] = {}
        #: Batches whose outcome is not definite, and their bytes.
        self.held = 0
        self.held_bytes = 0
        self._looked_at = -inf
        #: When the last back-off ends.
        self._backs_off_until = -inf
        #: The error for which the transaction can only be aborted.
        self.failed: int | None = None

    @property
    def busy(self) -> bool:
        """Whether the outcome of a batch is not definite."""
        return bool(self._busy)

    # -- accepting

    def accept(self, batches: Iterable[Batch]) -> list[TxnSend]:
        """Stamps batches in place, marks whether they are transactional and holds them: at most one for each partition.

        After a failure they are settled at once. RemoteProtocolError: one is not whole, and none was accepted;
        LocalProtocolError: a partition is named twice.
        """
        sends = [self._stamped(*batch) for batch in batches]
        if len(sends) > 1 and len({send.place for send in sends}) < len(sends):
            raise LocalProtocolError("a Produce request holds one batch for each partition")
        for send in sends:
            self.held += 1
            self.held_bytes += len(send.batch)
            if self.failed is not None:
                self._settle(send, GIVEN_UP)
                continue
            track = self._tracks.get(send.place)
            if track is None:
                track = self._tracks[send.place] = _Track()
            self._busy[send.place] = track
            track.next_sequence = advance(send.sequence, send.records)
            track.sends.append(send)
        return sends

    def _stamped(self, topic: str, partition: int, batch: memoryview, records: int) -> TxnSend:
        track = self._tracks.get((topic, partition))
        sequence = track.next_sequence if track is not None else 0
        stamp(batch, self._producer_id, self._epoch, sequence)
        set_transactional(batch, self._is_marked)
        return TxnSend((topic, partition), batch, records, sequence)

    # -- sending

    def ready(self, now: float) -> list[TxnSend]:
        """The batches to send now: at most one for each partition. What is too old to be sent again fails it all."""
        self._looked_at = now
        found: list[TxnSend] = []
        for track in self._busy.values():
            send = track.next_send(now, self._max_in_flight)
            if send is None:
                continue
            if send.ever_open and send.sent_at < now - self._timing.trusted:
                self._fail(STATE_LOST, send)
                return []
            found.append(send)
        return found

    def follows(self, send: TxnSend) -> bool:
        """Whether the outcome of a batch before it in its partition is not definite."""
        return send is not self._busy[send.place].sends[0]

    def is_followed(self, send: TxnSend) -> bool:
        """Whether a batch after it in its partition was accepted."""
        return send is not self._busy[send.place].sends[-1]

    def next_due(self) -> float:
        """The end of the next back-off that was on at the last call of ``ready``, or began since; inf if none was."""
        if self._backs_off_until <= self._looked_at:
            return inf
        return min((track.due_at for track in self._busy.values() if track.due_at > self._looked_at), default=inf)

    def started(self, send: TxnSend, now: float) -> None:
        """Notes that a batch was handed to a connection."""
        send.in_flight = True
        send.attempts += 1
        send.sent_at = min(send.sent_at, now)

    # -- outcomes

    def written(self, send: TxnSend, base_offset: int, log_append_time_ms: int) -> None:
        """Notes that a batch is in the log, and where. An offset that is not known, or not in order, fails it all."""
        if send.settled:
            return
        if base_offset < 0:
            self._fail(STATE_LOST, send)  # which copy counts could not be told
            return
        track = self._busy[send.place]
        send.base_offset, send.log_append_time_ms = base_offset, log_append_time_ms
        self._settle(send, 0)
        track.established, track.failures = True, 0
        while track.sends and track.sends[0].settled:
            if not track.take_in(track.sends.popleft()):
                self._fail(STATE_LOST)
                return
        if not track.sends:
            del self._busy[send.place]

    def again(self, send: TxnSend, now: float, *, is_open: bool, error_code: int = 0) -> None:
        """Notes that a batch has to be sent (again): it may be in the log all the same if ``is_open``."""
        if send.settled:
            return
        send.in_flight = False
        send.ever_open |= is_open
        send.reason = "open" if is_open else "not_now"
        track = self._busy[send.place]
        if send is track.sends[0]:
            track.failures += 1
        backoff = self._timing.backoff * 2 ** min(max(track.failures - 1, 0), _MOST_DOUBLINGS)
        track.due_at = now + min(backoff, self._timing.backoff_max)
        self._backs_off_until = max(self._backs_off_until, track.due_at)
        if error_code in DOUBTFUL:
            send.unlikely_answers += 1
            if send.unlikely_answers >= PATIENCE:
                self._fail(error_code, send)

    def refused(self, send: TxnSend, error_code: int, now: float) -> None:
        """Notes that a batch can't be written. A partition may yet become known, which is waited for."""
        if error_code in DOUBTFUL:
            self.again(send, now, is_open=False, error_code=error_code)
        elif not send.settled:
            self._fail(error_code, send)

    def out_of_sequence(self, send: TxnSend) -> None:
        """Notes that the broker expects another sequence: one before it failed, or the producer's state is lost."""
        if send.settled:
            return
        if send is self._busy[send.place].sends[0]:
            self._fail(STATE_LOST, send)
            return
        send.in_flight = False
        send.reason = "behind_a_failure"

    def abandon(self, error_code: int = GIVEN_UP) -> None:
        """Gives up all that is not settled: the transaction is aborted."""
        self._fail(error_code if self.failed is None else self.failed, told=error_code)

    def _fail(self, error_code: int, culprit: TxnSend | None = None, told: int = GIVEN_UP) -> None:
        self.failed = error_code
        for send in self._held():
            self._settle(send, error_code if send is culprit else told)
        self._busy.clear()

    def _held(self) -> Iterator[TxnSend]:
        return (send for track in self._busy.values() for send in track.sends if not send.settled)

    def _settle(self, send: TxnSend, error_code: int) -> None:
        self.held -= 1
        self.held_bytes -= len(send.batch)
        send.settled, send.in_flight, send.error_code, send.batch = True, False, error_code, _NOTHING

    # -- the whole

    def summary(self) -> dict[TopicPartition, PartitionWrites]:
        """The content of a decision to commit. LocalProtocolError while an outcome is open, or if it can't commit."""
        if self.failed is not None or self._busy:
            raise LocalProtocolError(f"transaction of epoch {self._epoch} can't be committed (yet)")
        return {
            place: PartitionWrites(track.end_offset, tuple(track.copies), track.first_offset)
            for place, track in self._tracks.items()
        }
