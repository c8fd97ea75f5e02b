import pytest

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.batch import Record, build_batch, read_header
from kproxy.codec.header import encode_request
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import ProduceLayout, walk_request
from kproxy.dedup.producer_ids import KPROXY_BIT
from kproxy.proxy.produce_batches import check_batch, has_kproxy_id, has_producer_id, new_batches, read_batch_head
from tests.codec.message_sets import entry
from tests.proxy.playbook import PID, batch


def laid_out(*records: bytes | None) -> tuple[bytearray, ProduceLayout]:
    """A Produce v7 frame with these record sets, and its layout."""
    rows = [ProduceRequestPartitionProduceData(index=index, records=data) for index, data in enumerate(records)]
    request = ProduceRequest(acks=-1, topic_data=[ProduceRequestTopicProduceData(name="t", partition_data=rows)])
    frame = bytearray(encode_request(request, 7, 1, None))
    return frame, walk_request(frame, 14, 7)


def changed(data: bytes, at: int, value: bytes) -> bytes:
    """A batch of which some bytes of the header are others."""
    return data[:at] + value + data[at + len(value) :]


#: No more than a header that announces one record.
HEADER = changed(batch(b"a", producer_id=PID)[:61], 8, (49).to_bytes(4, "big"))
#: Attributes of a batch with gzip.
GZIP = changed(batch(b"a"), 21, b"\0\1")
#: No record; fewer and more records than the last offset says.
NONE, FEWER, MORE = (
    changed(changed(batch(b"a"), 23, last.to_bytes(4, "big", signed=True)), 57, count.to_bytes(4, "big"))
    for last, count in ((-1, 0), (5, 1), (0, 3))
)


@pytest.mark.parametrize(
    ("producer_id", "own", "forged"),
    [
        (-(2**63), False, False),
        (-1, False, False),
        (0, True, False),
        (4711, True, False),
        (KPROXY_BIT, True, True),
        (PID, True, True),
    ],
)
def test_the_producer_id_of_the_client(producer_id: int, own: bool, forged: bool) -> None:
    frame, layout = laid_out(None, batch(b"a"), batch(b"b", producer_id=producer_id))
    assert has_producer_id(frame, layout) is own
    assert has_kproxy_id(frame, layout) is forged


def test_old_formats_have_no_producer_id() -> None:
    frame, layout = laid_out(entry(0, bytes(60), bytes(60)))
    assert not has_producer_id(frame, layout)
    assert not has_kproxy_id(frame, layout)


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_formats_have_no_producer_id_where_format_v2_has_it(magic: int) -> None:
    frame, layout = laid_out(changed(batch(b"a", producer_id=PID), 16, bytes([magic])))
    assert not has_producer_id(frame, layout)
    assert not has_kproxy_id(frame, layout)


def test_less_than_a_header_has_no_producer_id() -> None:
    for data, known in ((HEADER, True), (HEADER[:60], False)):
        frame, layout = laid_out(data)
        assert has_producer_id(frame, layout) is known
        assert has_kproxy_id(frame, layout) is known


@pytest.mark.parametrize(("data", "records"), [(batch(b"a", b"b", b"c"), 3), (HEADER, 1), (GZIP, 1)])
def test_a_good_batch_says_how_many_records_it_has(data: bytes, records: int) -> None:
    frame, layout = laid_out(data)
    assert check_batch(frame, layout.partitions[0]) == (0, records)


def test_the_head_of_a_good_batch_is_that_of_its_header() -> None:
    frame, layout = laid_out(batch(b"a", b"b", producer_id=4711))
    header = read_header(frame, layout.partitions[0].start)
    stamp = header.producer_id, header.producer_epoch, header.base_sequence
    assert read_batch_head(frame, layout.partitions[0]) == (0, 2, header.attributes, *stamp)


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (batch(b"a")[:60], ErrorCode.INVALID_RECORD),
        (batch(b"a") + batch(b"a"), ErrorCode.INVALID_RECORD),
        (batch(b"a")[:-1], ErrorCode.INVALID_RECORD),
        (batch(b"a", is_control=True), ErrorCode.INVALID_RECORD),
        (NONE, ErrorCode.INVALID_RECORD),
        (FEWER, ErrorCode.INVALID_RECORD),
        (MORE, ErrorCode.INVALID_RECORD),
        (entry(0, bytes(60), bytes(60)), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (changed(batch(b"a"), 16, b"\3"), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    ],
)
def test_what_a_broker_would_refuse_too(records: bytes | None, error: int) -> None:
    frame, layout = laid_out(records)
    assert check_batch(frame, layout.partitions[0]) == (error, 0)
    assert read_batch_head(frame, layout.partitions[0]) == (error, 0, 0, -1, -1, -1)


def test_new_batches_are_counted() -> None:
    no_producer = changed(HEADER, 43, b"\xff" * 14)
    frame, layout = laid_out(batch(b"a", b"b", b"c"), batch(b"d"), GZIP, no_producer)
    assert new_batches(frame, layout) == [3, 1, 1, 1]


@pytest.mark.parametrize(
    "records",
    [
        None,
        batch(b"a")[:60],
        batch(b"a") + b"\0",
        batch(b"a")[:-1],
        batch(b"a", producer_id=7),
        entry(0, bytes(60), bytes(60)),
        bytes(build_batch([Record(0, 0, None, b"a")], is_control=True)),
        changed(batch(b"a", b"b"), 57, b"\0\0\0\3"),
        changed(batch(b"a"), 57, bytes(4)),
        NONE,
        FEWER,
        changed(batch(b"a"), 16, b"\1"),
        changed(batch(b"a"), 16, b"\3"),
    ],
)
def test_one_that_is_not_a_whole_new_batch_needs_a_closer_look(records: bytes | None) -> None:
    assert new_batches(*laid_out(batch(b"a"), records)) is None
