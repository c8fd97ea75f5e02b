import gc
import sys
from subprocess import run

import pytest

from kproxy.budget import MOST_ELEMENTS, RequestBudget, TooManyElements, standalone, unbounded
from kproxy.codec._generated.api_versions import ApiVersionsResponse, ApiVersionsResponseApiVersion
from kproxy.codec._generated.fetch import FetchResponse, FetchResponseFetchableTopicResponse, FetchResponsePartitionData
from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest
from kproxy.codec._generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kproxy.codec._generated.offset_commit import OffsetCommitRequest
from kproxy.codec._generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.messages import (
    APIS,
    ApiKey,
    ErrorCode,
    Message,
    api_name,
    decode_request,
    request_class,
    response_class,
)
from kproxy.codec.primitives import MOST_TAGS, skip_tags
from kproxy.errors import LocalProtocolError, RemoteProtocolError


def test_every_key_has_a_request_and_a_response() -> None:
    for key, (_, low, high, flexible) in APIS.items():
        for cls in (request_class(key), response_class(key)):
            assert (key, low, high, flexible) == (cls.API_KEY, cls.MIN_VERSION, cls.MAX_VERSION, cls.FLEXIBLE_FROM)
    assert request_class(ApiKey.METADATA) is MetadataRequest
    assert response_class(ApiKey.METADATA) is MetadataResponse


@pytest.mark.parametrize("key", [-1, 4, 7, 9999])
def test_an_unknown_key_is_a_protocol_error(key: int) -> None:
    with pytest.raises(RemoteProtocolError):
        request_class(key)
    with pytest.raises(RemoteProtocolError):
        response_class(key)


def test_error_codes_know_what_is_retriable() -> None:
    assert ErrorCode(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.MESSAGE_TOO_LARGE.retriable
    assert ErrorCode(-1) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not ErrorCode.NONE.retriable


def test_a_message_module_is_imported_when_first_asked_for() -> None:
    script = (
        "import sys; from kproxy.codec.messages import request_class\n"
        "assert not any(m.endswith('_generated.fetch') for m in sys.modules)\n"
        "request_class(1); assert 'kproxy.codec._generated.fetch' in sys.modules\n"
    )
    assert run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_old_produce_request_as_it_is_on_the_wire() -> None:
    data = bytes.fromhex("ffff 000005dc 00000001 0001 74 00000001 00000003 00000004 01020304")
    request = ProduceRequest.decode(data, 0, unbounded())
    assert (request.acks, request.timeout_ms, request.transactional_id) == (-1, 1500, None)
    [topic] = request.topic_data
    [partition] = topic.partition_data
    assert (topic.name, partition.index, bytes(partition.records or b"")) == ("t", 3, b"\1\2\3\4")
    assert request.encode(0) == data


def test_records_are_a_view_into_the_frame() -> None:
    partition = ProduceRequestPartitionProduceData(records=b"abcd")
    request = ProduceRequest(topic_data=[ProduceRequestTopicProduceData("t", partition_data=[partition])])
    frame = bytearray(request.encode(7))
    records = ProduceRequest.decode(frame, 7, unbounded()).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    frame[-4:] = b"wxyz"
    assert bytes(records) == b"wxyz"


def test_a_field_that_the_version_lacks_has_its_default() -> None:
    request = MetadataRequest.decode(MetadataRequest(topics=[]).encode(0), 0, unbounded())
    assert request == MetadataRequest(topics=[], allow_auto_topic_creation=True)


def test_what_the_version_cannot_say_is_refused_unless_it_may_be_ignored() -> None:
    with pytest.raises(LocalProtocolError, match="allow_auto_topic_creation"):
        MetadataRequest(allow_auto_topic_creation=False).encode(3)
    with pytest.raises(LocalProtocolError, match="key_type"):
        FindCoordinatorRequest(key="k", key_type=1).encode(0)
    assert MetadataResponse(throttle_time_ms=7).encode(0) == MetadataResponse().encode(0)


def test_null_is_refused_where_the_version_has_none() -> None:
    assert MetadataRequest(topics=None).encode(1) == b"\xff\xff\xff\xff"
    with pytest.raises(LocalProtocolError):
        MetadataRequest(topics=None).encode(0)
    with pytest.raises(RemoteProtocolError):
        MetadataRequest.decode(b"\xff\xff\xff\xff", 0, unbounded())
    with pytest.raises(LocalProtocolError):
        MetadataRequest(topics=[MetadataRequestTopic(name=None)]).encode(9)
    with pytest.raises(RemoteProtocolError):
        MetadataRequest.decode(b"\0\0\0\1\xff\xff", 1, unbounded())


@pytest.mark.parametrize(
    "message",
    [
        FindCoordinatorRequest(key="x" * 32768),
        FindCoordinatorRequest(key="\ud800"),
        FindCoordinatorRequest(key=b"bytes"),  # type: ignore[arg-type]
        FindCoordinatorRequest(key="k", key_type=128),
        FindCoordinatorRequest(key="k", key_type=None),  # type: ignore[arg-type]
        OffsetCommitRequest(group_id="g", topics=[None]),  # type: ignore[list-item]
        OffsetCommitRequest(group_id="g", topics=7),  # type: ignore[arg-type]
    ],
)
def test_what_no_version_can_say_is_refused(message: Message) -> None:
    with pytest.raises(LocalProtocolError):
        message.encode(2)


def test_a_uuid_has_16_bytes() -> None:
    with pytest.raises(LocalProtocolError):
        MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"short")]).encode(12)


@pytest.mark.parametrize("version", [-1, 14, 32767])
def test_an_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(RemoteProtocolError):
        MetadataRequest.decode(b"", version, unbounded())
    with pytest.raises(LocalProtocolError):
        MetadataRequest().encode(version)


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        FindCoordinatorRequest.decode(b"\0\2\xc3\x28", 0, unbounded())


def test_unknown_tagged_fields_survive_in_the_order_of_their_tags() -> None:
    response = ApiVersionsResponse(
        api_keys=[ApiVersionsResponseApiVersion(3, 0, 13, {9: b"x"})],
        finalized_features_epoch=5,
        unknown_tags={200: b"later", 7: b"soon"},
    )
    data = response.encode(3)
    assert data.endswith(b"\3" + b"\1\x08" + (5).to_bytes(8, "big") + b"\7\4soon" + b"\xc8\1\5later")
    assert ApiVersionsResponse.decode(data, 3, unbounded()) == response
    assert ApiVersionsResponse.decode(response.encode(2), 2, unbounded()).unknown_tags == {}


def test_a_tagged_field_must_be_as_long_as_it_says() -> None:
    response = FetchResponse(
        responses=[
            FetchResponseFetchableTopicResponse(partitions=[FetchResponsePartitionData(preferred_read_replica=1)])
        ]
    )
    partition = response.responses[0].partitions[0]
    partition.current_leader.leader_id = 5
    data = response.encode(16)
    tag = b"\1\1\x09" + (5).to_bytes(4, "big") + b"\xff\xff\xff\xff\0"
    assert data.count(tag) == 1
    for damaged in (b"\1\1\x0a" + tag[3:], b"\1\1\x0a" + tag[3:] + b"\0", b"\1\1\x08" + tag[3:]):
        with pytest.raises(RemoteProtocolError):
            FetchResponse.decode(data.replace(tag, damaged), 16, unbounded())


def test_encode_into_appends() -> None:
    out = bytearray(b"head")
    MetadataRequest(topics=None).encode_into(out, 1)
    assert out == b"head\xff\xff\xff\xff"


def test_bytes_after_a_message_are_allowed_only_where_asked_for() -> None:
    data = FindCoordinatorRequest(key="g").encode(0)
    with pytest.raises(RemoteProtocolError, match="1 bytes too many"):
        FindCoordinatorRequest.decode(data + b"\0", 0, unbounded())
    assert FindCoordinatorRequest.decode(data + b"\0", 0, unbounded(), surplus=True).key == "g"
    with pytest.raises(RemoteProtocolError):
        FindCoordinatorRequest.decode(data[:-1], 0, unbounded(), surplus=True)


def test_api_names_are_kafkas() -> None:
    assert [api_name(key) for key in (0, 2, 18, 22, 61)] == [
        "Produce",
        "ListOffsets",
        "ApiVersions",
        "InitProducerId",
        "DescribeProducers",
    ]
    assert api_name(9999) == "9999"


def elements(most: int) -> RequestBudget:
    """The budget of a message that may have so many elements."""
    return RequestBudget(most, 0, 0)


def test_a_request_has_so_many_elements_and_no_more() -> None:
    topics = [OffsetFetchRequestTopic(name, [1, 2, 3]) for name in "ab"]
    body, budget = OffsetFetchRequest("g", topics=topics).encode(6), elements(3)
    assert decode_request(ApiKey.OFFSET_FETCH, body + b"surplus", 6, budget) == OffsetFetchRequest("g", topics=topics)
    assert budget.elements == 1
    with pytest.raises(TooManyElements):
        decode_request(ApiKey.OFFSET_FETCH, body, 6, budget)


def test_unknown_tagged_fields_are_counted() -> None:
    request = OffsetFetchRequest("g", topics=[], unknown_tags={100: b"", 101: b""})
    assert decode_request(ApiKey.OFFSET_FETCH, request.encode(6), 6, elements(2)) == request
    with pytest.raises(TooManyElements):
        decode_request(ApiKey.OFFSET_FETCH, request.encode(6), 6, elements(1))
    request.unknown_tags = dict.fromkeys(range(100, 100 + MOST_TAGS + 1), b"")
    with pytest.raises(RemoteProtocolError, match="tagged fields"):
        OffsetFetchRequest.decode(request.encode(6), 6, unbounded())


def test_integers_of_an_array_count_for_a_part_of_an_element() -> None:
    request = OffsetFetchRequest("g", topics=[OffsetFetchRequestTopic("a", list(range(33)))])
    assert decode_request(ApiKey.OFFSET_FETCH, request.encode(6), 6, elements(3)) == request
    with pytest.raises(TooManyElements):
        decode_request(ApiKey.OFFSET_FETCH, request.encode(6), 6, elements(2))


def test_any_message_is_bounded() -> None:
    response = MetadataResponse(topics=[MetadataResponseTopic(name="t")] * 3)
    body = response.encode(1)
    assert MetadataResponse.decode(body, 1, elements(3)) == response
    with pytest.raises(TooManyElements):
        MetadataResponse.decode(body, 1, elements(2))
    many = MetadataResponse(topics=[MetadataResponseTopic(name="")] * (MOST_ELEMENTS + 1)).encode(1)
    with pytest.raises(TooManyElements):
        MetadataResponse.decode(many, 1, standalone())


def test_what_nothing_is_kept_of_has_no_budget() -> None:
    assert skip_tags(b"\x01\x05\x00", 0) == 3
    assert skip_tags(b"\x00", 0) == 1


def test_what_was_read_of_a_damaged_message_is_free_at_once() -> None:
    """Once an error kept the frames of all readers, and gigabytes that they had read."""
    name = "free at once" * 10  # other tests of this process may leave topics of theirs
    body = MetadataResponse(topics=[MetadataResponseTopic(name=name)] * 3).encode(1)[:-1]
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(RemoteProtocolError) as caught:
            MetadataResponse.decode(body, 1, unbounded())
        assert caught.value.__context__ is None
        topics = [one for one in gc.get_objects() if isinstance(one, MetadataResponseTopic)]
        assert not [one for one in topics if one.name == name]
    finally:
        gc.enable()
