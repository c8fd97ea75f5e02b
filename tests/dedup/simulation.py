"""One producer, one partition, a network that loses and delays: drives the cores as the shell does.

Batches go out up to five at a time; after a failure what is in flight is waited for, and then ``next_step`` is followed
until nothing is left. A request of a connection that was lost may reach the broker at any time later (``late``).
A fence is done as the shell does it: a marker for the next epoch, then the log is looked through.
"""

import random
from collections import deque
from dataclasses import dataclass, field

from kproxy.codec.batch import read_header
from kproxy.codec.messages import ErrorCode
from kproxy.dedup.lanes import Send, Track
from kproxy.dedup.produce_outcome import ProduceOutcome
from kproxy.dedup.producer_ids import KPROXY_BIT
from kproxy.dedup.resend import Fence, next_step
from tests.dedup.broker_model import NOW_S, Partition, batch_of

IN_FLIGHT = 5
PRODUCER = KPROXY_BIT | 1


@dataclass
class Faults:
    """How often what goes wrong, in parts of one; what is refused by its content, in parts of all batches."""

    lost: float = 0.0
    not_now: float = 0.0
    after_append: float = 0.0
    state_lost: float = 0.0
    refused: float = 0.0
    #: What the broker can't read: it always answers UNKNOWN_SERVER_ERROR, as Kafka does to compressed garbage.
    unreadable: float = 0.0
    #: Refused once, as by an ACL that changes; the next attempt may be taken.
    sometimes_refused: float = 0.0
    #: What a lost connection had not delivered yet comes later, instead of never.
    late: bool = False
    #: The producer's state is lost whatever is in doubt, by a broker that says so (UNKNOWN_PRODUCER_ID).
    forgets: float = 0.0
    #: All batches bear old timestamps, by which the broker forgets the producer as soon as it has written one.
    old: bool = False


@dataclass
class Run:
    """One run; what happened is in ``trace``."""

    seed: int
    faults: Faults
    batches: int = 30
    trace: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.broker = Partition(strict=bool(self.faults.forgets))
        start = 0 if self.faults.forgets else self.random.choice([0, 0, 5, (1 << 31) - 3])
        self.track = Track((b"t", 0), PRODUCER, self.random.choice([0, 3]), next_sequence=start)
        self.sends: list[Send] = []
        self.too_large = {n for n in range(self.batches) if self.random.random() < self.faults.refused}
        self.unreadable = {n for n in range(self.batches) if self.random.random() < self.faults.unreadable}
        self.delayed: list[deque[tuple[int, bytes]]] = []

    def go(self) -> None:
        """Sends all, and lets the last late copy arrive."""
        flight: deque[tuple[int, Send, bytes]] = deque()
        while len(self.sends) < self.batches or flight:
            while len(self.sends) < self.batches and self.track.has_room(IN_FLIGHT) and self.random.random() < 0.8:
                flight.append(self._accept())
            if flight and not self._exchange(flight):
                while flight:
                    self._exchange(flight)
                self._recover()
        while self.delayed:
            self._late()

    def _accept(self) -> tuple[int, Send, bytes]:
        number, count = len(self.sends), self.random.randint(1, 3)
        send = self.track.accept(batch_of(number, count, 86_400 * self.faults.old), count, NOW_S)
        self.sends.append(send)
        return number, send, bytes(send.batch)

    def _recover(self) -> None:
        for _ in range(1000):
            step = next_step(self.track, NOW_S)
            if step is None:
                return
            if isinstance(step, Fence):
                self._fence(step)
                continue
            self._exchange(deque([(self.sends.index(step.send), step.send, bytes(step.send.batch))]))
        raise AssertionError("no end of sending again")

    def _fence(self, step: Fence) -> None:
        error = self.broker.mark(PRODUCER, self.track.epoch + 1)
        self.trace.append(f"fence e{self.track.epoch + 1} {step.reason} -> {error}")
        assert not error
        for _ in range(self.random.choice([0, 0, 1, 3])):
            if self.delayed:
                self._late()
        self.track.fenced(self.broker.found(), NOW_S)

    def _exchange(self, flight: deque[tuple[int, Send, bytes]]) -> bool:
        """The next request of a connection reaches the broker, or the connection is lost. False: send again."""
        while self.delayed and self.random.random() < 0.3:
            self._late()
        if self.random.random() < self.faults.lost:
            self._lose(flight)
            return False
        number, send, data = flight.popleft()
        error, offset = self._serve(number, data)
        self.trace.append(f"{number} e{self.track.epoch} s{send.sequence} -> {error}")
        done = self.track.answered(send, error, offset, -1)
        if not done and send.outcome is ProduceOutcome.REFUSED and len(self.track.sends) == 1 and not send.ever_open:
            self.track.refuse(send, send.error_code)
            return True
        return done

    def _serve(self, number: int, data: bytes) -> tuple[int, int]:
        faults, roll = self.faults, self.random.random
        if number in self.too_large:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if number in self.unreadable:
            return ErrorCode.UNKNOWN_SERVER_ERROR, -1
        if roll() < faults.sometimes_refused:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1
        if roll() < faults.not_now:
            return self.random.choice([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER]), -1
        if faults.old or (roll() < faults.state_lost and self._alone()):
            self.broker.producers.clear()
        if roll() < faults.forgets and self._none_is_first():
            self.broker.producers.clear()
            self.trace.append("forgotten")
        error, offset = self.broker.append(data)
        if not error and roll() < faults.after_append:
            error = self.random.choice(
                [
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                    ErrorCode.REQUEST_TIMED_OUT,
                ]
            )
            return error, -1
        return error, offset

    def _alone(self) -> bool:
        """Nothing else is unsettled or in flight: a broker that does not say so would treat a repeat as new."""
        return len(self.track.sends) == 1 and not self.track.sends[0].ever_open and not self.delayed

    def _none_is_first(self) -> bool:
        """No copy of an epoch's first batch is anywhere: a broker that forgot the producer would treat that as new."""
        on_their_way = [data for queue in self.delayed for _, data in queue]
        on_their_way += [bytes(send.batch) for send in self.track.sends if send.ever_open]
        return all(read_header(data).base_sequence for data in on_their_way)

    def _lose(self, flight: deque[tuple[int, Send, bytes]]) -> None:
        arrives = self.random.randint(0, len(flight))
        late: deque[tuple[int, bytes]] = deque()
        for place, (number, send, data) in enumerate(flight):
            self.trace.append(f"{number} e{self.track.epoch} s{send.sequence} lost")
            if place < arrives:
                if number not in self.too_large | self.unreadable:
                    self.broker.append(data)
                if self.faults.old:
                    self.broker.producers.clear()
            else:
                late.append((number, data))
            self.track.lost(send)
        flight.clear()
        if late and self.faults.late:
            self.delayed.append(late)

    def _late(self) -> None:
        queue = self.random.choice(self.delayed)
        number, data = queue.popleft()
        if not queue:
            self.delayed.remove(queue)
        if number not in self.too_large | self.unreadable:
            result = self.broker.append(data)
            self.trace.append(f"{number} late -> {result}")

    def check(self) -> None:
        """The promises: nothing acknowledged is lost, nothing is written twice, order stays, offsets are right."""
        what = f"seed {self.seed}: " + "; ".join(self.trace)
        places: dict[int, list[int]] = {}
        for written in self.broker.log:
            places.setdefault(written.number, []).append(written.offset)
        assert all(send.settled for send in self.sends), what
        assert not self.track.sends, what
        for number, send in enumerate(self.sends):
            found = places.get(number, [])
            if not send.error_code:
                assert found == [send.base_offset], f"batch {number} at {found}, told {send.base_offset}; {what}"
            else:
                assert not found, f"batch {number}, refused, at {found}; {what}"
        told = [number for number, send in enumerate(self.sends) if not send.error_code]
        assert [w.number for w in self.broker.log if w.number in set(told)] == told, what
