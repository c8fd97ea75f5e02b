import pytest

from kproxy.budget import unbounded
from kproxy.codec._generated.produce import ProduceRequest, ProduceResponse
from kproxy.codec.header import decode_request_header
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.dedup.lanes import Lane, Send
from kproxy.proxy.produce_calls import PartitionCall, ProduceCall, build_request, build_response
from kproxy.proxy.slots import Slot
from tests.proxy.playbook import PID, batch

TOPIC_ID = bytes(range(16))


def call(version: int, parts: list[PartitionCall]) -> ProduceCall:
    return ProduceCall(Slot(ApiKey.PRODUCE, version, 7, 0.0, 0), version, version, 1500, "me", parts)


def written(offset: int, append_ms: int = -1) -> Send:
    send = Lane(PID).track((b"t", 0)).accept(memoryview(bytearray(batch(b"a"))), 1, 0.0)
    send.base_offset, send.log_append_time_ms, send.settled = offset, append_ms, True
    return send


@pytest.mark.parametrize("version", range(14))
def test_an_answer_can_be_said_in_every_version(version: int) -> None:
    topic = TOPIC_ID if version >= 13 else b"t"
    parts = [
        PartitionCall(topic, 0, [written(5, 99)]),
        PartitionCall(topic, 1, [], ErrorCode.CORRUPT_MESSAGE),
        PartitionCall(topic, 2, [written(8), written(9)]),
    ]
    answer = ProduceResponse.decode(build_response(call(version, parts)).encode(version), version, unbounded())
    (said,) = answer.responses
    rows = [(row.index, row.error_code, row.base_offset) for row in said.partition_responses]
    assert rows == [(0, 0, 5), (1, ErrorCode.CORRUPT_MESSAGE, -1), (2, 0, 8)]
    assert said.partition_responses[0].log_append_time_ms == (99 if version >= 2 else -1)
    assert (said.topic_id if version >= 13 else said.name.encode()) == topic


@pytest.mark.parametrize("version", range(3, 14))
def test_a_request_of_kproxys_own_asks_for_all_acknowledgements(version: int) -> None:
    topic = TOPIC_ID if version >= 13 else b"t"
    lane = Lane(PID)
    sends = [lane.track((topic, index)).accept(memoryview(bytearray(batch(b"x"))), 1, 0.0) for index in (0, 1)]
    frame = build_request(call(version, []), sends)[4:]
    header = decode_request_header(frame)
    request = ProduceRequest.decode(frame, version, unbounded(), header.size)
    assert (header.correlation_id, header.client_id) == (7, "me")
    assert (request.acks, request.timeout_ms) == (-1, 1500)
    (said,) = request.topic_data
    assert [(row.index, bytes(row.records or b"")) for row in said.partition_data] == [
        (0, bytes(sends[0].batch)),
        (1, bytes(sends[1].batch)),
    ]
