"""The benchmark's own parts, over a sink and a relay, with a handful of requests: do they work, not how fast."""

from collections.abc import Iterator

import pytest

from bench import load, payloads
from bench.load import Call, LoadError
from bench.processes import free_port, running
from bench.targets import leader, open_sink
from kproxy.codec.header import decode_request_header

TOTAL_BYTES = 5 * payloads.BATCH_BYTES


@pytest.fixture(scope="module", params=["direct", "relay"])
def address(request: pytest.FixtureRequest) -> Iterator[load.Address]:
    with open_sink() as port:
        if request.param == "direct":
            yield "127.0.0.1", port
            return
        relay = free_port()
        with running("relay", relay, "-m", "bench.relay", str(relay), str(port)):
            yield "127.0.0.1", relay


@pytest.mark.parametrize("version", [payloads.OLD_PRODUCE, payloads.MODERN_PRODUCE])
@pytest.mark.parametrize("topic", list(payloads.RECORD_BYTES))
def test_produce_counts_what_was_acknowledged(address: load.Address, topic: str, version: int) -> None:
    done = load.produce(address, [payloads.produce_call(topic, version)], TOTAL_BYTES, window=5)
    assert done.payload_bytes == done.records * payloads.RECORD_BYTES[topic]
    assert 0.9 * TOTAL_BYTES < done.payload_bytes <= TOTAL_BYTES


def test_each_producer_has_a_name_of_its_own_unless_it_shall_not(address: load.Address) -> None:
    call, names = payloads.small_produce_call(), []
    for renames in (True, True, False):
        load.produce(address, [call], call.payload_bytes, window=1, renames=renames)
        names.append(decode_request_header(memoryview(call.frame)[4:]).client_id)
    first, second, third = names
    assert len(first or "") == len(payloads.CLIENT_ID)
    assert first != second == third


@pytest.mark.parametrize("partitions", [1, 6])
def test_requests_of_kafkas_own_producer_are_answered_for_each_partition(
    address: load.Address, partitions: int
) -> None:
    calls = payloads.java_calls(partitions)
    assert len({len(call.frame) for call in calls}) > 1
    done = load.produce(address, calls, 30 * calls[0].payload_bytes, window=5, pause_seconds=0.0001)
    assert done.records * payloads.RECORD_BYTES[payloads.LARGE] == done.payload_bytes


def test_an_error_of_any_partition_is_seen() -> None:
    with pytest.raises(LoadError, match="error code 3"):
        Call(bytearray(), error_at=1, rows=2, row_bytes=4).check(memoryview(bytes([9, 0, 0, 9, 9, 0, 3])))


@pytest.mark.parametrize("version", [payloads.OLD_FETCH, payloads.MODERN_FETCH])
def test_fetch_brings_the_whole_set(address: load.Address, version: int) -> None:
    entry = payloads.RECORD_BYTES[payloads.SMALL]
    done = load.fetch(address, payloads.fetch_call(payloads.SMALL, version), 2_000_000, entry_bytes=entry)
    assert done.payload_bytes >= 2_000_000
    assert done.records > payloads.served_records(payloads.SMALL)


@pytest.mark.parametrize(
    "call", [payloads.small_produce_call(), payloads.list_offsets_call()], ids=["produce", "offsets"]
)
def test_ping_times_each_request(address: load.Address, call: Call) -> None:
    taken = load.ping(address, call, 10)
    assert len(taken) == 10
    assert taken == sorted(taken)


def test_an_error_code_ends_the_run(address: load.Address) -> None:
    call = payloads.small_produce_call()
    # The response's correlation id is at the position of the error code.
    wrong = Call(bytearray(call.frame), error_at=2, records=1, payload_bytes=100)
    with pytest.raises(LoadError, match="error code 1"):
        load.produce(address, [wrong], 300, window=1)


def test_the_leader_is_found(address: load.Address) -> None:
    assert leader(address)[0] == "127.0.0.1"


def test_a_stalled_sink_stops_taking_bytes() -> None:
    frame = bytes(payloads.produce_call(payloads.LARGE, payloads.MODERN_PRODUCE).frame)
    with open_sink(stall_after_bytes=1 << 20) as port:
        pushed, sockets = load.push_until_blocked([("127.0.0.1", port)] * 2, frame, patience_seconds=0.5)
        for connection in sockets:
            connection.close()
    assert pushed >= 1 << 20
