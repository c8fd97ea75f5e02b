"""The batches of one transaction."""

from collections import deque
from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec.batch import Record, build_batch, crc_ok, iter_records, read_header
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.errors import LocalProtocolError, RemoteProtocolError
from kproxy.txn.ids import TXN_BITS
from kproxy.txn.writes import GIVEN_UP, PATIENCE, STATE_LOST, PartitionWrites, Timing, TxnSend, Writes

PID, EPOCH = TXN_BITS | 7, 3
TIMING = Timing(backoff=1.0, backoff_max=8.0, trusted=300.0)
P, Q = ("t", 0), ("t", 1)


def batch(*values: bytes, transactional: bool = True) -> memoryview:
    rows = [Record(offset, 1_700_000_000_000, None, value, ()) for offset, value in enumerate(values)]
    return memoryview(build_batch(rows, is_transactional=transactional))


def writes(**timing: float) -> Writes:
    return Writes(PID, EPOCH, TIMING._replace(**timing), 5)


def accept(core: Writes, place: TopicPartition, *values: bytes) -> TxnSend:
    (send,) = core.accept([(*place, batch(*values), len(values))])
    return send


def send_all(core: Writes, now: float = 0.0) -> list[TxnSend]:
    """What may be sent now, sent."""
    sent: list[TxnSend] = []
    while ready := core.ready(now):
        for send in ready:
            core.started(send, now)
        sent += ready
    return sent


def established(core: Writes, place: TopicPartition = P) -> None:
    """One record is written."""
    first = accept(core, place, b"first")
    assert send_all(core) == [first]
    core.written(first, 0, -1)


class TestAccepting:
    def test_stamps_with_sequences_from_0_on_each_partition_and_clears_the_bit(self) -> None:
        core = writes()
        data = [batch(b"a", b"b"), batch(b"c"), batch(b"d", transactional=False)]
        core.accept([(*P, data[0], 2), (*Q, data[1], 1)])
        core.accept([(*P, data[2], 1)])
        headers = [read_header(each) for each in data]
        assert [(h.producer_id, h.producer_epoch, h.base_sequence) for h in headers] == [
            (PID, EPOCH, 0),
            (PID, EPOCH, 0),
            (PID, EPOCH, 2),
        ]
        assert not any(header.is_transactional for header in headers)
        assert all(crc_ok(each, 0, len(each)) for each in data)
        assert (core.held, core.held_bytes) == (3, sum(map(len, data)))

    def test_one_that_is_not_whole_leaves_all_unaccepted(self) -> None:
        core = writes()
        with pytest.raises(RemoteProtocolError):
            core.accept([(*P, batch(b"a"), 1), (*Q, batch(b"b")[:-1], 1)])
        assert not core.busy
        assert accept(core, P, b"a").sequence == 0

    def test_one_batch_for_each_partition(self) -> None:
        core = writes()
        with pytest.raises(LocalProtocolError):
            core.accept([(*P, batch(b"a"), 1), (*P, batch(b"b"), 1)])
        assert not core.busy

    def test_sequences_wrap(self) -> None:
        core = writes()
        core.accept([(*P, batch(b"a"), (1 << 31) - 1)])
        assert accept(core, P, b"b", b"c").sequence == (1 << 31) - 1
        assert accept(core, P, b"d").sequence == 1


class TestSending:
    def test_the_first_of_a_partition_goes_alone_and_five_are_in_flight_then(self) -> None:
        core = writes()
        sends = [accept(core, P, b"%d" % n) for n in range(8)]
        other = accept(core, Q, b"q")
        assert send_all(core) == [sends[0], other]
        assert [core.follows(send) for send in (*sends[:2], other)] == [False, True, False]
        assert [core.is_followed(send) for send in (*sends[6:], other)] == [True, False, False]
        core.written(sends[0], 0, -1)
        assert not core.follows(sends[1])
        assert send_all(core) == sends[1:6]
        core.written(sends[1], 1, 77)
        assert (sends[1].settled, sends[1].base_offset, sends[1].log_append_time_ms) == (True, 1, 77)
        assert send_all(core) == [sends[6]]

    def test_what_is_after_an_open_one_does_not_run_ahead_of_what_a_broker_remembers(self) -> None:
        core = writes()
        established(core)
        sends = [accept(core, P, b"%d" % n) for n in range(7)]
        assert send_all(core) == sends[:5]
        core.written(sends[1], 2, -1)
        assert send_all(core) == []

    def test_one_that_was_written_before_those_ahead_of_it_holds_up_nothing(self) -> None:
        core = writes()
        established(core)
        sends = [accept(core, P, b"%d" % n) for n in range(3)]
        assert send_all(core) == sends
        core.written(sends[1], 2, -1)
        following = accept(core, P, b"following")
        assert send_all(core) == [following]

    def test_after_a_failure_they_go_one_by_one_in_order(self) -> None:
        core = writes()
        established(core)
        sends = [accept(core, P, b"%d" % n) for n in range(4)]
        assert send_all(core) == sends
        core.again(sends[0], 0.0, is_open=False)
        assert send_all(core, 5.0) == [], "the others are still on their way"
        for send in sends[1:]:
            core.out_of_sequence(send)
        for at, send in enumerate(sends):
            assert send_all(core, 5.0) == [send]
            core.written(send, at + 1, -1)
        assert core.summary()[P] == PartitionWrites(5, ((1, 1), (2, 2), (3, 3), (4, 4)), 0)
        assert [send.reason for send in sends] == ["not_now"] + ["behind_a_failure"] * 3

    def test_back_off_doubles_up_to_its_limit_and_begins_again_after_a_success(self) -> None:
        core = writes()
        send = accept(core, P, b"a")
        now, waits = 0.0, []
        for _ in range(6):
            assert send_all(core, now) == [send]
            core.again(send, now, is_open=True)
            due = core.next_due()
            assert core.ready(due - 0.01) == []
            assert core.next_due() == due
            waits.append(due - now)
            now = due
        assert waits == [1, 2, 4, 8, 8, 8]
        assert send_all(core, now) == [send]
        core.written(send, 0, -1)
        behind = accept(core, P, b"b")
        assert send_all(core, now) == [behind]
        core.again(behind, now, is_open=True)
        assert core.next_due() == now + 1
        core.ready(now + 1)
        assert core.next_due() == inf

    def test_one_connection_that_is_lost_is_one_failure(self) -> None:
        core = writes()
        established(core)
        sends = [accept(core, P, b"%d" % n) for n in range(5)]
        assert send_all(core) == sends
        for send in sends:
            core.again(send, 0.0, is_open=True)
        assert core.next_due() == 1.0

    def test_what_could_not_be_sent_at_all_is_no_copy(self) -> None:
        core = writes()
        send = accept(core, P, b"a")
        core.again(send, 0.0, is_open=False)
        assert send_all(core, 1.0) == [send]
        core.written(send, 4, -1)
        assert core.summary() == {P: PartitionWrites(5, (), 4)}

    def test_the_earliest_back_off_that_has_not_ended_is_due_next(self) -> None:
        core = writes()
        send, other = accept(core, P, b"a"), accept(core, Q, b"b")
        assert core.next_due() == inf
        core.again(send, 0.0, is_open=False)
        core.again(other, 0.5, is_open=False)
        assert core.next_due() == 1.0
        for now in (1.0, 1.2):
            core.ready(now)
            assert core.next_due() == 1.5

    def test_a_partition_that_waits_holds_up_no_other(self) -> None:
        core = writes()
        send, other = accept(core, P, b"a"), accept(core, Q, b"b")
        assert send_all(core) == [send, other]
        core.again(send, 0.0, is_open=True)
        core.written(other, 0, -1)
        following = accept(core, Q, b"c")
        assert send_all(core) == [following]


class TestFailing:
    def test_a_refusal_fails_all_and_tells_its_batch(self) -> None:
        core = writes()
        established(core)
        good, bad, other = accept(core, P, b"a"), accept(core, P, b"b"), accept(core, Q, b"c")
        send_all(core)
        core.written(good, 1, -1)
        core.refused(bad, ErrorCode.MESSAGE_TOO_LARGE, 0.0)
        assert core.failed == ErrorCode.MESSAGE_TOO_LARGE
        assert [send.error_code for send in (good, bad, other)] == [0, ErrorCode.MESSAGE_TOO_LARGE, GIVEN_UP]
        assert (core.busy, core.held, core.held_bytes) == (False, 0, 0)
        core.written(other, 9, -1)
        assert other.error_code == GIVEN_UP
        late = accept(core, P, b"d")
        assert (late.settled, late.error_code, core.held_bytes, core.busy) == (True, GIVEN_UP, 0, False)
        with pytest.raises(LocalProtocolError):
            core.summary()

    @pytest.mark.parametrize("open_before", [False, True])
    def test_state_that_is_lost(self, open_before: bool) -> None:
        core = writes()
        established(core)
        send = accept(core, P, b"a")
        send_all(core)
        if open_before:
            core.again(send, 0.0, is_open=True)
            send_all(core, 1.0)
        core.out_of_sequence(send)
        assert (core.failed, send.error_code) == (STATE_LOST, STATE_LOST)

    def test_what_was_written_before_a_failure_stays_written(self) -> None:
        """Its response may be in flight; its bytes are given back once."""
        core = writes()
        established(core)
        first, second, third = (accept(core, P, value) for value in (b"a", b"b", b"c"))
        send_all(core)
        core.written(second, 2, -1)
        core.refused(first, ErrorCode.MESSAGE_TOO_LARGE, 0.0)
        assert [send.error_code for send in (first, second, third)] == [ErrorCode.MESSAGE_TOO_LARGE, 0, GIVEN_UP]
        assert (core.held, core.held_bytes) == (0, 0)

    def test_an_offset_that_nobody_knows(self) -> None:
        core = writes()
        send = accept(core, P, b"a")
        send_all(core)
        core.written(send, -1, -1)
        assert core.failed == STATE_LOST

    def test_copies_in_another_order(self) -> None:
        core = writes()
        established(core)
        sends = [accept(core, P, b"%d" % n) for n in range(3)]
        send_all(core)
        core.again(sends[0], 0.0, is_open=True)
        core.written(sends[1], 2, -1)
        core.written(sends[2], 3, -1)
        assert send_all(core, 1.0) == [sends[0]]
        core.written(sends[0], 4, -1)
        assert core.failed == STATE_LOST

    def test_what_was_open_for_minutes_is_not_sent_again(self) -> None:
        core = writes(trusted=10.0)
        send, other = accept(core, P, b"a"), accept(core, Q, b"b")
        send_all(core)
        core.again(send, 1.0, is_open=True)
        core.again(other, 1.0, is_open=False)
        assert send_all(core, 10.0) == [send, other]
        core.again(other, 10.0, is_open=False)
        assert send_all(core, 30.0) == [other], "nothing of it can be in the log"
        core.again(send, 30.0, is_open=True)
        assert core.ready(40.0) == []
        assert (core.failed, send.error_code, other.error_code) == (STATE_LOST, STATE_LOST, GIVEN_UP)

    def test_what_was_refused_is_in_no_log(self) -> None:
        core = writes(trusted=10.0)
        send = accept(core, P, b"a")
        send_all(core)
        core.refused(send, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0.0)
        assert send.reason == "not_now"
        assert send_all(core, 30.0) == [send]

    def test_a_connection_that_is_lost_fails_nothing_however_often(self) -> None:
        core = writes()
        send = accept(core, P, b"a")
        for attempt in range(2 * PATIENCE):
            assert send_all(core, attempt * 10.0) == [send]
            core.again(send, attempt * 10.0, is_open=True)
        assert (core.failed, send.reason) == (None, "open")

    def test_no_decision_is_made_while_an_outcome_is_open(self) -> None:
        core = writes()
        send = accept(core, P, b"a")
        with pytest.raises(LocalProtocolError):
            core.summary()
        send_all(core)
        core.written(send, 0, -1)
        assert core.summary() == {P: PartitionWrites(1, (), 0)}

    @pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_SERVER_ERROR])
    def test_doubtful_answers_are_believed_when_they_last(self, error: ErrorCode) -> None:
        core = writes()
        send = accept(core, P, b"a")
        for attempt in range(PATIENCE):
            assert core.failed is None
            assert send_all(core, attempt * 10.0) == [send]
            if error == ErrorCode.UNKNOWN_SERVER_ERROR:
                core.again(send, attempt * 10.0, is_open=True, error_code=error)
            else:
                core.refused(send, error, attempt * 10.0)
        assert (core.failed, send.error_code) == (error, error)

    def test_abandoned(self) -> None:
        core = writes()
        established(core)
        sends = [accept(core, P, b"a"), accept(core, P, b"b")]
        send_all(core)
        core.abandon(ErrorCode.INVALID_PRODUCER_EPOCH)
        assert [send.error_code for send in sends] == [ErrorCode.INVALID_PRODUCER_EPOCH] * 2
        assert core.failed == ErrorCode.INVALID_PRODUCER_EPOCH
        for outcome in (core.out_of_sequence, lambda send: core.again(send, 0.0, is_open=True)):
            outcome(sends[0])
        core.refused(sends[1], ErrorCode.MESSAGE_TOO_LARGE, 0.0)
        assert sends[1].error_code == core.failed == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_a_failure_stays_what_it_was_when_it_is_abandoned(self) -> None:
        core = writes()
        core.refused(accept(core, P, b"a"), ErrorCode.INVALID_RECORD, 0.0)
        core.abandon()
        assert core.failed == ErrorCode.INVALID_RECORD


@dataclass
class ModelBroker:
    """One partition: a log, and the last five batches of the producer, unless the broker has forgotten them."""

    log: list[tuple[int, int, bytes]] = field(default_factory=list)
    """Offset, base sequence and content of each batch."""
    end: int = 0
    known: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=5))
    """Base sequence and offset."""
    next_sequence: int | None = None

    def append(self, data: bytes) -> tuple[int, int]:
        """The error code and offset."""
        header = read_header(data)
        for sequence, offset in self.known:
            if sequence == header.base_sequence:
                return 0, offset
        if self.next_sequence not in (None, header.base_sequence):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        content = b"".join(record.value or b"" for record in iter_records(data, max_decompressed_bytes=1 << 20))
        self.log.append((self.end, header.base_sequence, content))
        self.known.append((header.base_sequence, self.end))
        self.end += header.record_count
        self.next_sequence = header.base_sequence + header.record_count
        return 0, self.log[-1][0]

    def forget(self) -> None:
        self.known.clear()
        self.next_sequence = None

    def visible(self, written: PartitionWrites) -> list[bytes]:
        copies = dict(written.copies)
        return [content for offset, sequence, content in self.log if copies.get(sequence, offset) == offset]


class Walk:
    """A transaction, its partitions, and a connection to each that may be cut; what was on it may arrive late."""

    def __init__(self) -> None:
        self.core = Writes(PID, EPOCH, TIMING._replace(trusted=1e9), 5)
        self.brokers = {place: ModelBroker() for place in (P, Q)}
        self.accepted: dict[TopicPartition, list[tuple[TxnSend, bytes]]] = {P: [], Q: []}
        self.on_way: dict[TopicPartition, deque[tuple[TxnSend, bytes]]] = {P: deque(), Q: deque()}
        self.late: list[tuple[TopicPartition, bytes]] = []
        self.now = 0.0

    def accept(self, place: TopicPartition, count: int) -> None:
        value = b"%d," % len(self.accepted[place])
        (send,) = self.core.accept([(*place, batch(*([value] * count)), count)])
        self.accepted[place].append((send, value * count))

    def send(self) -> None:
        self.now += 10
        for send in self.core.ready(self.now):
            self.core.started(send, self.now)
            self.on_way[send.place].append((send, bytes(send.batch)))

    def answer(self, place: TopicPartition, how: str) -> None:
        if not self.on_way[place]:
            return
        send, data = self.on_way[place].popleft()
        if how == "not_now":
            self.core.again(send, self.now, is_open=False)
            return
        error, offset = self.brokers[place].append(data)
        if error:
            self.core.out_of_sequence(send)
        elif how == "open":
            self.core.again(send, self.now, is_open=True)
        else:
            self.core.written(send, offset, -1)

    def cut(self, place: TopicPartition, arrived: int) -> None:
        """Ends a connection when some more of what is on it has arrived; the rest may come later."""
        for at, (send, data) in enumerate(self.on_way[place]):
            if at < arrived:
                self.brokers[place].append(data)
            else:
                self.late.append((place, data))
            self.core.again(send, self.now, is_open=True)
        self.on_way[place].clear()

    def arrive(self) -> None:
        if self.late:
            place, data = self.late.pop(0)
            self.brokers[place].append(data)

    def finish(self) -> None:
        for _ in range(500):
            if not self.core.busy:
                return
            self.send()
            for place in self.on_way:
                while self.on_way[place]:
                    self.answer(place, "ok")
        raise AssertionError("it does not come to an end")

    def check(self) -> None:
        assert all(send.settled for sends in self.accepted.values() for send, _ in sends)
        if self.core.failed is not None:
            return
        summary = self.core.summary()
        for place, sends in self.accepted.items():
            if sends:
                broker = self.brokers[place]
                assert broker.visible(summary[place]) == [content for _, content in sends]
                in_log = {(offset, content) for offset, _, content in broker.log}
                assert all((send.base_offset, content) in in_log for send, content in sends)
                last = sends[-1][0]
                assert summary[place].end_offset == last.base_offset + last.records


PLACES = st.sampled_from([P, Q])
STEPS = st.one_of(
    st.tuples(st.just("accept"), PLACES, st.integers(1, 3)),
    st.tuples(st.just("send")),
    st.tuples(st.just("answer"), PLACES, st.sampled_from(["ok", "ok", "ok", "open", "not_now"])),
    st.tuples(st.just("cut"), PLACES, st.integers(0, 5)),
    st.tuples(st.just("arrive")),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(STEPS, max_size=60), st.sets(st.integers(0, 60), max_size=2))
def test_what_is_reported_is_what_a_reader_sees(steps: list[tuple[object, ...]], forgetting: set[int]) -> None:
    walk = Walk()
    for at, (name, *arguments) in enumerate(steps):
        if at in forgetting:
            walk.brokers[P].forget()
        getattr(walk, str(name))(*arguments)
    walk.finish()
    walk.check()
    while walk.late:
        walk.arrive()
        walk.check()


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_while_brokers_remember_nothing_fails_and_nothing_is_there_twice(steps: list[tuple[object, ...]]) -> None:
    walk = Walk()
    for name, *arguments in steps:
        if name != "arrive":
            getattr(walk, str(name))(*arguments)
    walk.finish()
    assert walk.core.failed is None
    for place, sends in walk.accepted.items():
        assert [content for _, _, content in walk.brokers[place].log] == [content for _, content in sends]
