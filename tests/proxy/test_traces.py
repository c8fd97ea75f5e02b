import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.codec._generated.add_partitions_to_txn import AddPartitionsToTxnRequest
from kproxy.codec._generated.metadata import MetadataRequest
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.header import encode_request
from kproxy.codec.produce_layout import walk_request
from kproxy.proxy.traces import TraceParent, parent_in, parse_traceparent, traced_produce, traced_request
from tests.net.harness import produce

VALUE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PARENT = TraceParent(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, True)


def batch(*headers: tuple[str, bytes | None], codec: int = 0, key: bytes | None = b"k") -> memoryview:
    return memoryview(build_batch([Record(0, 0, key, None, headers)], codec=codec))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (VALUE, PARENT),
        (VALUE[:-2] + b"00", PARENT._replace(sampled=False)),
        (VALUE[:-2] + b"ff", PARENT),
        (b"cc" + VALUE[2:] + b"-what-comes-later", PARENT),
        (b"ff" + VALUE[2:], None),
        (VALUE.upper(), None),
        (VALUE[:-1], None),
        (b"00-" + b"0" * 32 + VALUE[35:], None),
        (VALUE[:36] + b"0" * 16 + b"-01", None),
        (b"", None),
    ],
)
def test_traceparent(value: bytes, expected: TraceParent | None) -> None:
    assert parse_traceparent(value) == expected


@pytest.mark.parametrize("key", [None, b"", b"k" * 300])
def test_the_first_record_bears_the_context(key: bytes | None) -> None:
    assert parent_in(batch(("a", b"b"), ("traceparent", VALUE), ("c", None), key=key)) == PARENT


@pytest.mark.parametrize("other", [(), (("tracestate", b"x"),), (("traceparent", None),), (("traceparent", b"?"),)])
def test_without_one_there_is_none(other: tuple[tuple[str, bytes | None], ...]) -> None:
    assert parent_in(batch(*other)) is None


def test_nothing_is_unpacked_for_it() -> None:
    assert parent_in(batch(("traceparent", VALUE), codec=1)) is None


def test_only_so_many_headers_are_read() -> None:
    many = [(f"h{number}", b"") for number in range(40)]
    assert parent_in(batch(*many, ("traceparent", VALUE))) is None


@given(st.integers(0, 200), st.binary(max_size=80))
def test_a_damaged_batch_has_none_or_a_whole_one(at: int, junk: bytes) -> None:
    whole = bytes(batch(("traceparent", VALUE)))
    found = parent_in(memoryview(whole[:at] + junk + whole[at + len(junk) :]))
    assert found is None or found.trace_id
    assert parent_in(memoryview(whole[:at])) in (None, PARENT)


def test_a_produce_request_tells_its_partitions() -> None:
    frame = bytearray(encode_request(produce("t", b"v", partition=3), 8, 1, "me"))
    layout = walk_request(frame, 4 + 8 + 2 + 2, 8)
    assert traced_produce(frame, layout, "id").places == [("t", 3)]
    assert traced_produce(frame, layout, "id").transactional_id == "id"


@pytest.mark.parametrize(("size", "found"), [(10, (PARENT,)), (20_000, ())])
def test_the_context_is_searched_for_in_the_beginning_of_a_batch(size: int, found: tuple[TraceParent, ...]) -> None:
    request = produce("t", b"")
    request.topic_data[0].partition_data[0].records = bytes(batch(("traceparent", VALUE), key=b"k" * size))
    frame = bytearray(encode_request(request, 8, 1, "me"))
    assert traced_produce(frame, walk_request(frame, 4 + 8 + 2 + 2, 8)).parents == found


def test_other_requests_tell_their_transactional_id() -> None:
    assert traced_request(AddPartitionsToTxnRequest(v3_and_below_transactional_id="x")).transactional_id == "x"
    assert traced_request(MetadataRequest()).transactional_id is None
