from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from kproxy.budget import unbounded
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.batch import Record, build_batch, crc_ok, read_header, stamp
from kproxy.codec.header import decode_request_header, encode_request, encode_response, response_header_size
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import ProduceLayout, walk_request
from kproxy.dedup.lanes import LanePool
from kproxy.dedup.producer_ids import KPROXY_BIT
from kproxy.dedup.resend import next_step
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.conversion import conversion
from kproxy.proxy.produce_batches import new_batches
from kproxy.proxy.produce_calls import ProduceCall, UpstreamProduce, build_response
from kproxy.proxy.producing import FIRST_V2, Producer
from kproxy.proxy.slots import Slot
from tests.codec.message_sets import entry

PRODUCER_ID = KPROXY_BIT | 9
NOW = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
Rows = Sequence[tuple[str, int, bytes | None]]


def batch(count: int = 1, producer_id: int = -1, *, is_control: bool = False) -> bytes:
    records = [Record(at, NOW, None, b"value %d" % at) for at in range(count)]
    return bytes(build_batch(records, producer_id=producer_id, is_control=is_control))


def frame_of(rows: Rows, version: int, acks: int = 1) -> bytearray:
    topics: dict[str, ProduceRequestTopicProduceData] = {}
    for name, index, records in rows:
        topic = topics.setdefault(name, ProduceRequestTopicProduceData())
        if version >= 13:
            topic.topic_id = TOPIC_ID
        else:
            topic.name = name
        topic.partition_data.append(ProduceRequestPartitionProduceData(index=index, records=records))
    request = ProduceRequest(acks=acks, timeout_ms=1500, topic_data=list(topics.values()))
    return bytearray(encode_request(request, version, 77, "client"))


def layout_of(frame: bytearray, version: int) -> ProduceLayout:
    return walk_request(frame, 4 + decode_request_header(memoryview(frame)[4:]).size, version)


def request_in(frame: bytes | bytearray, version: int) -> ProduceRequest:
    header = decode_request_header(memoryview(frame)[4:])
    assert (header.correlation_id, header.client_id, header.api_version) == (77, "client", version)
    return ProduceRequest.decode(memoryview(frame)[4 + header.size :], version, unbounded())


@dataclass
class Shell:
    """A producer with what a session does for it."""

    in_flight: int = 5
    max_batch_bytes: int = 1 << 20
    converted: list[tuple[str, int, int, int]] = field(default_factory=list)
    groups: list[UpstreamProduce] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.producer = Producer(self.in_flight, lambda *counts: self.converted.append(counts))
        self.producer.lane = LanePool().adopt(9)

    def request(
        self,
        rows: Rows,
        version: int = 7,
        upstream: int | None = None,
        acks: int = 1,
        refused: Mapping[tuple[bytes, int], int] | None = None,
    ) -> ProduceCall:
        frame = frame_of(rows, version, acks)
        upstream = version if upstream is None else upstream
        call = ProduceCall(Slot(0, version, 77, 0.0, len(frame)), version, upstream, 1500, "client")
        layout = layout_of(frame, version)
        converted = None
        if version < FIRST_V2:
            work = conversion(frame, layout, NOW, self.max_batch_bytes, unbounded())
            work.whole()
            converted = work.found
        self.producer.accept(call, frame, layout, converted, refused=refused or {})
        return call

    def ready(self) -> list[tuple[UpstreamProduce, bytearray | bytes]]:
        return self.producer.ready()

    def answer(self, group: UpstreamProduce, rows: Sequence[tuple[str, int, int, int]]) -> bool:
        """Rows of topic, partition, error and offset, in the version that the broker was asked in."""
        version = group.call.upstream_version
        topics: dict[str, ProduceResponseTopicProduceResponse] = {}
        for name, index, error, offset in rows:
            topic = topics.setdefault(name, ProduceResponseTopicProduceResponse())
            if version >= 13:
                topic.topic_id = TOPIC_ID
            else:
                topic.name = name
            row = ProduceResponsePartitionProduceResponse(index=index, error_code=error, base_offset=offset)
            topic.partition_responses.append(row)
        frame = bytearray(encode_response(ProduceResponse(responses=list(topics.values())), version, 77))
        return self.producer.answered(group, frame)

    def establish(self, *partitions: int) -> None:
        for index in partitions:
            self.request([("t", index, batch())])
            ((group, _),) = self.ready()
            self.answer(group, [("t", index, 0, 0)])
        self.producer.finished()


def stamps(frame: bytes | bytearray, version: int) -> list[tuple[int, int, int]]:
    found = []
    for topic in request_in(frame, version).topic_data:
        for row in topic.partition_data:
            assert row.records is not None
            assert crc_ok(row.records, 0, len(row.records))
            header = read_header(row.records)
            found.append((header.producer_id, header.producer_epoch, header.base_sequence))
    return found


def told(call: ProduceCall) -> list[tuple[int, int, int]]:
    """What a client reads in its response: partition, error and offset."""
    data = encode_response(build_response(call), call.version, call.slot.correlation_id)
    body = 4 + response_header_size(0, call.version, memoryview(data)[4:])
    response = ProduceResponse.decode(memoryview(data)[body:], call.version, unbounded())
    return [
        (row.index, row.error_code, row.base_offset)
        for topic in response.responses
        for row in topic.partition_responses
    ]


class TestStamping:
    @pytest.mark.parametrize("version", range(3, 14))
    @pytest.mark.parametrize("acks", [-1, 0, 1])
    def test_the_clients_own_frame_goes_up_stamped_and_with_acks_all(self, version: int, acks: int) -> None:
        shell = Shell()
        data = batch(3)
        shell.request([("t", 0, data), ("t", 1, data)], version, acks=acks)
        ((group, frame),) = shell.ready()
        assert frame is group.frame
        assert stamps(frame, version) == [(PRODUCER_ID, 0, 0)] * 2
        expected = frame_of([("t", 0, data), ("t", 1, data)], version, -1)
        for place in layout_of(expected, version).partitions:
            stamp(memoryview(expected)[place.start : place.end], PRODUCER_ID, 0, 0)
        assert frame == expected, "nothing else is touched"

    def test_sequences_continue(self) -> None:
        shell = Shell()
        shell.establish(0)
        for _ in range(2):
            shell.request([("t", 0, batch(3))])
        assert [stamps(frame, 7) for _, frame in shell.ready()] == [[(PRODUCER_ID, 0, 1)], [(PRODUCER_ID, 0, 4)]]

    def test_another_version_upstream_is_another_frame(self) -> None:
        shell = Shell()
        shell.request([("t", 0, batch())], 3, upstream=8)
        ((_, frame),) = shell.ready()
        request = request_in(frame, 8)
        assert (request.acks, request.timeout_ms) == (-1, 1500)
        assert stamps(frame, 8) == [(PRODUCER_ID, 0, 0)]


class TestWhole:
    """Requests that may be forwarded unchanged: as ``TestStamping``, with nothing made for each partition."""

    @staticmethod
    def take(shell: Shell, rows: Rows, version: int = 9, upstream: int = 9) -> tuple[ProduceCall, bytearray, bool]:
        frame = frame_of(rows, version)
        layout = layout_of(frame, version)
        counts = new_batches(frame, layout)
        assert counts is not None
        call = ProduceCall(Slot(0, version, 77, 0.0, len(frame)), version, upstream, 1500, "client")
        group = shell.producer.accept_whole(call, frame, layout, counts)
        if group is not None:
            shell.groups.append(group)
        return call, frame, group is not None

    @pytest.mark.parametrize("version", range(3, 14))
    def test_it_is_forwarded_stamped_and_with_acks_all(self, version: int) -> None:
        shell = Shell()
        _, frame, taken = self.take(shell, [("t", 1, batch(3)), ("t", 0, batch(2))], version, version)
        assert taken
        assert request_in(frame, version).acks == -1
        assert stamps(frame, version) == [(PRODUCER_ID, 0, 0)] * 2
        assert shell.answer(shell.groups[0], [("t", 0, 0, 5), ("t", 1, 0, 7)]) is False
        (call,) = shell.producer.finished()
        assert call.raw is not None
        assert told(call) == [(1, 0, 7), (0, 0, 5)]
        _, frame, taken = self.take(shell, [("t", 0, batch(1)), ("t", 1, batch(1))], version, version)
        assert stamps(frame, version) == [(PRODUCER_ID, 0, 2), (PRODUCER_ID, 0, 3)]

    def test_what_may_not_be_forwarded_as_it_is_is_left_as_it_is(self) -> None:
        shell = Shell()
        for rows, upstream in (
            ([("t", 0, batch()), ("t", 0, batch())], 9),  # a broker takes one batch of a partition
            ([("t", 0, batch())], 8),  # made for another version
        ):
            _, frame, taken = self.take(shell, rows, 9, upstream)
            assert not taken
            assert frame == frame_of(rows, 9)
        assert self.take(shell, [("t", 0, batch())])[2]
        assert not self.take(shell, [("t", 1, batch()), ("t", 0, batch())])[2], "the first of a partition is alone"
        shell.request([("t", 0, batch())], 9)
        assert not self.take(shell, [("t", 1, batch())])[2], "another one waits"
        assert not shell.producer.calls[0].raw

    def test_an_error_of_one_partition_is_returned_beside_the_success_of_another(self) -> None:
        shell = Shell()
        call, _, _ = self.take(shell, [("t", 0, batch()), ("t", 1, batch())])
        shell.answer(shell.groups[0], [("t", 0, 0, 5), ("t", 1, ErrorCode.MESSAGE_TOO_LARGE, -1)])
        assert shell.producer.finished() == [call]
        assert told(call) == [(0, 0, 5), (1, ErrorCode.MESSAGE_TOO_LARGE, -1)]

    def test_names_and_ids_of_topics_do_not_mix(self) -> None:
        shell = Shell()
        self.take(shell, [("t", 0, batch())], 12, 12)
        with pytest.raises(RemoteProtocolError, match="by name and by id"):
            self.take(shell, [("t", 1, batch())], 13, 13)


class TestInFlight:
    def test_one_until_the_first_is_written_then_five(self) -> None:
        shell = Shell()
        for _ in range(8):
            shell.request([("t", 0, batch())])
        ((first, _),) = shell.ready()
        assert shell.producer.waits
        assert not shell.ready()
        assert not shell.answer(first, [("t", 0, 0, 0)])
        flight = shell.ready()
        assert len(flight) == shell.producer.in_flight == 5
        assert not shell.answer(flight[0][0], [("t", 0, 0, 1)])
        assert len(shell.ready()) == 1

    def test_a_request_waits_for_each_of_its_partitions_and_none_passes_it(self) -> None:
        shell = Shell()
        shell.establish(0)
        shell.request([("t", 1, batch())])
        shell.request([("t", 0, batch()), ("t", 1, batch())])
        shell.request([("t", 0, batch())])
        ((first, _),) = shell.ready()
        assert [send.track.key for send in first.sends] == [(b"t", 1)]
        shell.answer(first, [("t", 1, 0, 0)])
        assert [len(group.sends) for group, _ in shell.ready()] == [2, 1]

    def test_what_is_lost_is_in_flight_no_more_but_open(self) -> None:
        shell = Shell()
        call = shell.request([("t", 0, batch())])
        ((group, _),) = shell.ready()
        shell.producer.lost(group)
        assert (shell.producer.in_flight, shell.producer.finished()) == (0, [])
        track = group.sends[0].track
        step = next_step(track, 0.0)
        assert step is not None
        track.answered(step.send, 0, 5, -1)
        shell.producer.recount()
        assert shell.producer.finished() == [call]
        assert told(call) == [(0, 0, 5)]


class TestAnswers:
    @pytest.mark.parametrize("version", range(3, 14))
    def test_a_good_answer_is_relayed_to_the_byte(self, version: int) -> None:
        shell = Shell()
        call = shell.request([("t", 0, batch()), ("t", 1, batch())], version)
        ((group, _),) = shell.ready()
        assert not shell.answer(group, [("t", 0, 0, 5), ("t", 1, 0, 6)])
        assert shell.producer.finished() == [call]
        assert call.raw is not None
        assert told(call) == [(0, 0, 5), (1, 0, 6)], "and would be built so"

    def test_an_answer_that_may_name_brokers_is_built(self) -> None:
        for version, relayed in ((9, True), (10, False)):
            shell = Shell()
            call = shell.request([("t", 0, batch())], version)
            ((group, _),) = shell.ready()
            shell.answer(group, [("t", 0, ErrorCode.MESSAGE_TOO_LARGE, -1)])
            assert (call.raw is not None) is relayed
            assert told(call) == [(0, ErrorCode.MESSAGE_TOO_LARGE, -1)]

    def test_partitions_fail_by_themselves(self) -> None:
        shell = Shell()
        call = shell.request([("t", 0, batch()), ("t", 1, batch()), ("u", 0, batch())])
        ((group, _),) = shell.ready()
        rows = [
            ("t", 0, 0, 5),
            ("t", 1, ErrorCode.MESSAGE_TOO_LARGE, -1),
            ("u", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        ]
        assert shell.answer(group, rows)
        assert not shell.producer.finished()
        (track,) = shell.producer.lane.unsettled() if shell.producer.lane else []
        step = next_step(track, 0.0)
        assert step is not None
        track.answered(step.send, 0, 8, -1)
        shell.producer.recount()
        assert shell.producer.finished() == [call]
        assert told(call) == [(0, 0, 5), (1, ErrorCode.MESSAGE_TOO_LARGE, -1), (0, 0, 8)]
        assert call.raw is None

    def test_a_partition_that_the_answer_leaves_out_is_open(self) -> None:
        shell = Shell()
        shell.request([("t", 0, batch()), ("t", 1, batch())])
        ((group, _),) = shell.ready()
        assert shell.answer(group, [("t", 1, 0, 5), ("t", 7, 0, 5), ("u", 0, 0, 5)])
        assert [(send.settled, send.ever_open) for send in group.sends] == [(False, True), (True, False)]

    def test_a_malformed_answer_says_nothing_of_any_batch(self) -> None:
        shell = Shell()
        shell.request([("t", 0, batch())])
        ((group, _),) = shell.ready()
        with pytest.raises(RemoteProtocolError):
            shell.producer.answered(group, bytearray(b"\0\0\0\x05\0\0\0\x4d\0"))
        assert (group.sends[0].settled, shell.producer.in_flight) == (False, 1)
        shell.producer.lost(group)
        assert (group.sends[0].ever_open, shell.producer.in_flight) == (True, 0)

    def test_a_refusal_lets_the_next_one_have_its_sequence(self) -> None:
        shell = Shell()
        shell.establish(0)
        shell.request([("t", 0, batch(4))])
        ((group, _),) = shell.ready()
        assert not shell.answer(group, [("t", 0, ErrorCode.MESSAGE_TOO_LARGE, -1)])
        shell.request([("t", 0, batch())])
        ((_, frame),) = shell.ready()
        assert stamps(frame, 7) == [(PRODUCER_ID, 0, 1)]

    def test_made_up_topics_cost_no_memory(self) -> None:
        shell = Shell()
        for number in range(50):
            shell.request([(f"made-up-{number}", 0, batch())])
            ((group, _),) = shell.ready()
            shell.answer(group, [(f"made-up-{number}", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)])
        assert shell.producer.lane is not None
        assert not shell.producer.lane.tracks

    def test_a_track_that_was_used_is_not_forgotten_for_a_refusal(self) -> None:
        shell = Shell()
        shell.establish(0)
        shell.request([("t", 0, batch())])
        ((group, _),) = shell.ready()
        shell.answer(group, [("t", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)])
        assert shell.producer.lane is not None
        assert shell.producer.lane.track((b"t", 0)).next_sequence == 1


class TestRefusedHere:
    @pytest.mark.parametrize(
        ("records", "error"),
        [
            (None, ErrorCode.INVALID_RECORD),
            (b"", ErrorCode.INVALID_RECORD),
            (batch()[:60], ErrorCode.INVALID_RECORD),
            (batch()[:-1], ErrorCode.INVALID_RECORD),
            (batch() + batch(), ErrorCode.INVALID_RECORD),
            (batch(is_control=True), ErrorCode.INVALID_RECORD),
            (batch()[:57] + b"\0\0\0\0" + batch()[61:], ErrorCode.INVALID_RECORD),
            (batch()[:57] + b"\0\0\0\x02" + batch()[61:], ErrorCode.INVALID_RECORD),
            (batch()[:57] + b"\xff\xff\xff\xff" + batch()[61:], ErrorCode.INVALID_RECORD),
            (entry(0, b"k" * 30, b"v" * 30), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        ],
    )
    def test_what_can_not_be_stamped_is_refused_and_nothing_else(self, records: bytes | None, error: int) -> None:
        shell = Shell()
        call = shell.request([("t", 0, records), ("t", 1, batch())])
        ((group, frame),) = shell.ready()
        (topic,) = request_in(frame, 7).topic_data
        assert [row.index for row in topic.partition_data] == [1]
        assert request_in(frame, 7).acks == -1
        shell.answer(group, [("t", 1, 0, 5)])
        assert told(call) == [(0, error, -1), (1, 0, 5)]

    def test_nothing_to_send_is_answered_at_once(self) -> None:
        shell = Shell()
        calls = [shell.request([("t", 0, None)]), shell.request([]), shell.request([("t", 0, b"")], 1, upstream=7)]
        assert not shell.ready()
        assert shell.producer.finished() == calls
        assert [told(call) for call in calls] == [[(0, ErrorCode.INVALID_RECORD, -1)], [], [(0, 0, -1)]]

    def test_what_is_refused_is_not_sent(self) -> None:
        for version, upstream in ((7, 7), (2, 7)):
            shell = Shell()
            data = batch() if version == 7 else entry(0, b"k", b"v")
            refused = {(b"t", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}
            call = shell.request([("t", 0, data)], version, upstream=upstream, refused=refused)
            assert told(call) == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
            shell.request([("t", 0, data)], version, upstream=upstream)
            assert len(shell.ready()) == 1

    def test_names_and_ids_do_not_mix(self) -> None:
        shell = Shell()
        shell.request([("t", 0, batch())], 12)
        with pytest.raises(RemoteProtocolError):
            shell.request([("t", 0, batch())], 13)


class TestTwice:
    @pytest.mark.parametrize(("version", "upstream"), [(7, 7), (2, 7)])
    def test_a_partition_that_comes_twice_in_a_request_is_written_twice(self, version: int, upstream: int) -> None:
        shell = Shell()
        first, second = (batch(2), batch(3)) if version == 7 else (entry(0, b"k", b"v"), entry(0, b"k", b"w"))
        call = shell.request([("t", 0, first), ("t", 1, first), ("t", 0, second)], version, upstream=upstream)
        ((group, frame),) = shell.ready()
        assert len(stamps(frame, upstream)) == 2
        shell.answer(group, [("t", 0, 0, 10), ("t", 1, 0, 20)])
        assert not shell.producer.finished()
        ((group, frame),) = shell.ready()
        assert stamps(frame, upstream) == [(PRODUCER_ID, 0, 2 if version == 7 else 1)]
        shell.answer(group, [("t", 0, 0, 12)])
        assert shell.producer.finished() == [call]
        assert sorted(told(call)) == [(0, 0, 10), (0, 0, 12), (1, 0, 20)]


class TestConverted:
    def test_a_message_set_becomes_a_batch(self) -> None:
        shell = Shell()
        call = shell.request([("t", 0, entry(0, b"k", b"v") + entry(1, b"k", b"w"))], 1, upstream=7, acks=0)
        ((group, frame),) = shell.ready()
        assert request_in(frame, 7).acks == -1
        assert stamps(frame, 7) == [(PRODUCER_ID, 0, 0)]
        shell.answer(group, [("t", 0, 0, 5)])
        assert call.raw is None
        assert told(call) == [(0, 0, 5)]
        assert shell.converted == [("up", 1, 1, 2)]

    def test_one_that_is_too_large_for_a_batch_becomes_several_in_order(self) -> None:
        shell = Shell(max_batch_bytes=300)
        large = b"".join(entry(at, b"k", b"v" * 100) for at in range(6))
        call = shell.request([("t", 0, large), ("t", 1, entry(0, b"k", b"v"))], 1, upstream=7)
        requests, offset = 0, 10
        while flight := shell.ready():
            for group, _ in flight:
                requests += 1
                assert len(group.sends) == (2 if requests == 1 else 1)
                rows = [(send.track.key[0].decode(), send.track.key[1], 0, offset) for send in group.sends]
                assert not shell.answer(group, rows)
                offset += group.sends[0].records
        sends = call.parts[0].sends
        assert requests == len(sends) > 1
        assert [send.sequence for send in sends] == [sum(s.records for s in sends[:at]) for at in range(len(sends))]
        assert sum(send.records for send in sends) == 6
        assert shell.producer.finished() == [call]
        assert told(call) == [(0, 0, 10), (1, 0, 10)], "the offset of the first"

    def test_an_error_of_one_batch_is_the_error_of_the_partition(self) -> None:
        shell = Shell(max_batch_bytes=200)
        large = b"".join(entry(at, b"k", b"v" * 100) for at in range(2))
        call = shell.request([("t", 0, large)], 1, upstream=7)
        for error in (0, ErrorCode.MESSAGE_TOO_LARGE):
            ((group, _),) = shell.ready()
            shell.answer(group, [("t", 0, error, -1 if error else 5)])
        assert shell.producer.finished() == [call]
        assert told(call) == [(0, ErrorCode.MESSAGE_TOO_LARGE, -1)]

    def test_a_damaged_message_set_is_refused(self) -> None:
        shell = Shell()
        good = entry(0, b"k", b"v")
        call = shell.request([("t", 0, good[:-1] + b"x"), ("t", 1, good)], 0, upstream=7)
        ((group, _),) = shell.ready()
        shell.answer(group, [("t", 1, 0, 5)])
        assert told(call) == [(0, ErrorCode.CORRUPT_MESSAGE, -1), (1, 0, 5)]

    @pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
    def test_a_storage_error_is_answered_in_words_of_the_version(self, version: int) -> None:
        shell = Shell()
        data = batch() if version >= 3 else entry(0, b"k", b"v")
        call = shell.request([("t", 0, data)], version, upstream=7)
        call.parts[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
        expected = ErrorCode.KAFKA_STORAGE_ERROR if version >= 4 else ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert told(call) == [(0, expected, -1)]


class TestTimeOuts:
    def test_an_answer_before_the_fate_is_known_is_an_error_for_that_call_alone(self) -> None:
        shell = Shell()
        first, second = shell.request([("t", 0, batch())]), shell.request([("t", 0, batch())])
        ((sent, _),) = shell.ready()  # the first batch of a producer id goes alone
        shell.producer.note_unsent(first)
        assert told(first) == [(0, ErrorCode.REQUEST_TIMED_OUT, -1)]
        shell.answer(sent, [("t", 0, 0, 5)])
        ((sent, _),) = shell.ready()
        shell.answer(sent, [("t", 0, 0, 6)])
        assert told(second) == [(0, 0, 6)]

    def test_what_was_not_sent_yet_is_answered_as_timed_out(self) -> None:
        shell = Shell()
        shell.request([("t", 0, batch())])
        second = shell.request([("t", 0, batch())])
        shell.ready()
        shell.producer.note_unsent(second)
        assert told(second) == [(0, ErrorCode.REQUEST_TIMED_OUT, -1)]
