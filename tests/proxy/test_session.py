"""The core of a connection under scripts: what goes to the broker, what to the client, and in which order."""

import pytest

from kproxy.budget import TooManyElements, unbounded
from kproxy.codec._generated.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApiVersion,
)
from kproxy.codec._generated.fetch import FetchRequest, FetchResponse
from kproxy.codec._generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest
from kproxy.codec._generated.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
    ProduceResponseNodeEndpoint,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateResponse
from kproxy.codec._generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kproxy.codec._generated.share_fetch import ShareFetchRequest
from kproxy.codec.batch import iter_records
from kproxy.codec.header import encode_response
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.dedup.lanes import Send, Track
from kproxy.dedup.losses import KnownEnds, Loss
from kproxy.dedup.producer_ids import KPROXY_BIT
from kproxy.errors import LocalProtocolError, RemoteProtocolError
from kproxy.proxy.commands import AwaitProgress, Close, Connect, Encode, LeaseProducerId, Resend
from kproxy.proxy.routing import Address
from kproxy.proxy.slots import RESPONSE_ELEMENT_BYTES
from tests.codec.message_sets import entry, wrapper
from tests.proxy.playbook import KAFKA_44, PID, Play, batch, configure, stamps


def produce(
    *sets: bytes, topic: str = "t", acks: int = -1, transactional_id: str | None = None, topic_id: bytes = bytes(16)
) -> ProduceRequest:
    parts = [ProduceRequestPartitionProduceData(index=index, records=data) for index, data in enumerate(sets)]
    data = ProduceRequestTopicProduceData(name=topic, topic_id=topic_id, partition_data=parts)
    return ProduceRequest(acks=acks, timeout_ms=500, transactional_id=transactional_id, topic_data=[data])


def produced(*errors: int, offset: int = 7, topic: str = "t", topic_id: bytes = bytes(16)) -> ProduceResponse:
    rows = [
        ProduceResponsePartitionProduceResponse(index=index, error_code=error, base_offset=-1 if error else offset)
        for index, error in enumerate(errors)
    ]
    return ProduceResponse(
        responses=[ProduceResponseTopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=rows)]
    )


def results(response: ProduceResponse) -> list[tuple[int, int]]:
    return [(row.error_code, row.base_offset) for t in response.responses for row in t.partition_responses]


# -- versions


def test_own_version_ranges_are_advertised_not_the_brokers() -> None:
    """Finding 2, 3 and 5: what Kafka 4 dropped is served from 0, Produce v0-v2 too, and clients must see it."""
    play = Play()
    play.ask(ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="1"), 3)
    rows = [ApiVersionsResponseApiVersion(key, low, high) for key, (low, high) in KAFKA_44.items()]
    play.reply(ApiVersionsResponse(api_keys=rows), 3, 1)
    told = {row.api_key: (row.min_version, row.max_version) for row in play.answer().api_keys}
    for key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH):
        assert told[key] == (0, KAFKA_44[key][1])
    assert told[ApiKey.CREATE_TOPICS][0] == told[ApiKey.DELETE_TOPICS][0] == 0
    assert told[ApiKey.SHARE_FETCH] == (1, 2)
    assert ApiKey.READ_SHARE_GROUP_STATE not in told


@pytest.mark.parametrize(("version", "newest"), [(6, 5), (5, 4), (99, 5)])
def test_newer_api_versions_get_the_v0_shaped_error_with_the_range_of_api_versions_alone(
    version: int, newest: int
) -> None:
    """Finding 7: franz-go opens with v5 and continues after this response."""
    play = Play(served={**KAFKA_44, ApiKey.API_VERSIONS: (0, newest)})
    frame = play.frame(ApiVersionsRequest(), 4)
    frame[6:8] = version.to_bytes(2, "big")
    assert play.session.request(frame, 1.0) is None
    (answer,) = play.session.to_client
    told = ApiVersionsResponse.decode(bytes(answer)[8:], 0, unbounded())
    assert told.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(r.api_key, r.min_version, r.max_version) for r in told.api_keys] == [(ApiKey.API_VERSIONS, 0, newest)]
    assert not play.session.to_upstream


def test_a_client_that_never_negotiates_is_served() -> None:
    """Finding 7: Java up to 0.10.0 and others open with Metadata."""
    play = Play()
    play.ask(MetadataRequest(topics=[]), 0)
    version, _, _ = play.sent()
    play.reply(MetadataResponse(brokers=[MetadataResponseBroker(1, "h1", 9091)]), version, 1)
    assert [(row.host, row.port) for row in play.answer().brokers] == [("proxy", 1001)]


@pytest.mark.parametrize("client_id", [None, "", "a", "ü" * 40])
def test_a_null_or_empty_client_id_is_legal(client_id: str | None) -> None:
    """Finding 8."""
    play = Play(client_id=client_id)
    play.ask(produce(batch(b"x")), 7)
    version, correlation_id, _ = play.sent()
    play.reply(produced(0), version, correlation_id)
    assert results(play.answer()) == [(0, 7)]
    play.ask(produce(entry(0, None, b"x", magic=0)), 0)
    play.sent()


def test_two_client_ids_on_one_connection_each_have_their_own_codecs() -> None:
    """Finding 8: kafka-node does this; finding 10: deliver.codecs goes by client id."""
    play = Play(transcode={"node": {3: 1}}, client_id="java")
    play.ask(FetchRequest(), 11)
    play.client_id = "node"
    play.ask(FetchRequest(session_epoch=0), 11)
    epochs = [request.session_epoch for _, _, request in play.upstream()]
    assert epochs == [-1, -1]
    assert play.ctx.transcode == {3: 1}


@pytest.mark.parametrize(
    ("key", "version"), [(999, 0), (3, 14), (3, -1), (ApiKey.READ_SHARE_GROUP_STATE, 0), (60, 9), (0, 14), (68, 0)]
)
def test_what_is_not_served_ends_the_connection(key: int, version: int) -> None:
    """Rule 15: the state of share groups is hidden, and refused; and all that kproxy or the broker does not know."""
    play = Play()
    frame = play.frame(ShareFetchRequest(), 1)
    frame[4:6], frame[6:8] = key.to_bytes(2, "big"), version.to_bytes(2, "big", signed=True)
    with pytest.raises(RemoteProtocolError):
        play.session.request(frame, 1.0)
    assert play.session.idle


def test_a_version_that_the_broker_serves_is_relayed_to_the_byte() -> None:
    """Rule 11."""
    play = Play()
    frame = play.frame(HeartbeatRequest(group_id="g", generation_id=3, member_id="m"), 4)
    wanted = bytes(frame)
    play.session.request(frame, 1.0)
    assert b"".join(map(bytes, play.session.to_upstream)) == wanted
    play.reply(HeartbeatResponse(error_code=27), 4, 1)
    assert play.answer().error_code == 27


# -- produce


def test_batches_are_stamped_and_the_response_is_passed_on_to_the_byte() -> None:
    play = Play()
    for number in range(3):
        play.ask(produce(batch(b"a", b"b")), 9)
        _, correlation_id, request = play.sent()
        assert stamps(request) == [(PID, 0, 2 * number)]
        assert request.acks == -1
        play.reply(produced(0, offset=number), 9, correlation_id)
        assert results(play.answer()) == [(0, number)]
    assert (
        play.stats.produce.batches_stamped,
        play.stats.produce.records_stamped,
        play.stats.produce.sends_in_flight,
    ) == (3, 6, 0)


def test_only_one_batch_of_a_new_producer_id_is_in_flight_until_it_is_in_then_five() -> None:
    """A broker takes the first batch of an unknown producer id at any sequence."""
    play = Play()
    play.ask(produce(batch(b"a")), 7)
    play.ask(produce(batch(b"b")), 7)
    _, first, _ = play.sent()
    assert play.ask(produce(batch(b"c")), 7) == AwaitProgress()
    play.reply(produced(0), 7, first)
    assert stamps(play.sent()[2]) == [(PID, 0, 1)]
    for value in (b"c", b"d", b"e", b"f", b"g"):
        assert play.ask(produce(batch(value)), 7) is None
    assert len(play.upstream()) == 4
    assert play.ask(produce(batch(b"h")), 7) == AwaitProgress()


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_old_record_sets_become_one_batch_of_format_v2(version: int, codec: int) -> None:
    """Rule 12: one batch a partition. Finding 12: inner offsets that are all 0 are renumbered."""
    play = Play()
    magic = 1 if version == 2 else 0
    inner = [entry(0, b"k", b"%d" % number, magic=magic) for number in range(3)]
    data = wrapper(codec, inner, magic=magic) if codec else b"".join(inner)
    play.ask(produce(data, acks=1), version)
    asked, correlation_id, request = play.sent()
    assert asked == 7
    records = list(iter_records(request.topic_data[0].partition_data[0].records, max_decompressed_bytes=1 << 20))
    assert [(record.offset, record.value) for record in records] == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert stamps(request) == [(PID, 0, 0)]
    play.reply(produced(0), asked, correlation_id)
    assert results(play.answer()) == [(0, 7)]
    assert play.stats.produce.records_converted == {("up", magic): 3}


@pytest.mark.parametrize("framing", [0, 1])
def test_both_header_checksums_of_lz4_are_accepted(framing: int) -> None:
    """Finding 9: KAFKA-3160."""
    play = Play()
    right = wrapper(3, [entry(0, None, b"x", magic=framing)], magic=framing)
    body = right[right.index(b"\x04\x22\x4d\x18") :]
    play.ask(produce(entry(0, None, body, magic=0, attributes=3)), 0)
    if framing == 0:
        (record,) = iter_records(play.sent()[2].topic_data[0].partition_data[0].records, max_decompressed_bytes=1 << 20)
        assert record.value == b"x"


def test_a_wrong_inner_checksum_is_corrupt_message_and_nothing_is_sent() -> None:
    """Finding 13: else kproxy would launder damage into a valid batch."""
    play = Play()
    inner = bytearray(entry(0, None, b"payload", magic=1))
    inner[-1] ^= 1
    play.ask(produce(wrapper(1, [bytes(inner)])), 2)
    assert results(play.answer()) == [(ErrorCode.CORRUPT_MESSAGE, -1)]
    assert not play.upstream()


def test_a_refused_partition_does_not_keep_the_others_from_being_written() -> None:
    play = Play()
    play.ask(produce(batch(b"a"), b"garbage", batch(b"c")), 8)
    version, correlation_id, request = play.sent()
    assert [part.index for part in request.topic_data[0].partition_data] == [0, 2]
    answer = produced(0, 0, 0)
    del answer.responses[0].partition_responses[1]
    play.reply(answer, version, correlation_id)
    assert results(play.answer()) == [(0, 7), (ErrorCode.INVALID_RECORD, -1), (0, 7)]


@pytest.mark.parametrize("version", [0, 2, 3, 9])
def test_acks_0_gets_no_answer_and_what_follows_does(version: int) -> None:
    play = Play()
    data = batch(b"a") if version > 2 else entry(0, None, b"a", magic=0)
    play.ask(produce(data, acks=0), version)
    play.ask(HeartbeatRequest(), 0)
    (asked, first, _), (_, second, _) = play.upstream()
    play.reply(produced(0), asked, first)
    assert play.answers() == []
    play.reply(HeartbeatResponse(), 0, second)
    assert play.answer() == HeartbeatResponse()
    assert play.session.idle


@pytest.mark.parametrize("acks", [2, -2, 32767])
@pytest.mark.parametrize("version", [0, 3, 9])
def test_acks_that_do_not_exist_are_refused(acks: int, version: int) -> None:
    play = Play()
    play.ask(produce(batch(b"a"), acks=acks), version)
    assert results(play.answer()) == [(ErrorCode.INVALID_REQUIRED_ACKS, -1)]
    assert not play.upstream()


@pytest.mark.parametrize("version", [1, 3, 9, 12])
@pytest.mark.parametrize("more", [{}, {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}])
def test_writes_to_kproxys_own_topics_are_refused(version: int, more: dict[str, int]) -> None:
    play = Play()
    play.ask(produce(batch(b"a", **more), topic="__kproxy_producer_state"), version)
    assert results(play.answer()) == [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)]
    assert not play.upstream()
    assert play.stats.refused.refusals == {"own_topic": 1}


@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_a_forged_producer_id_is_refused(transactional_id: str | None) -> None:
    play = Play()
    data = batch(b"a", producer_id=77 | KPROXY_BIT, producer_epoch=0, base_sequence=0)
    play.ask(produce(batch(b"b"), data, transactional_id=transactional_id), 9)
    assert results(play.answer()) == [(ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)] * 2
    assert not play.upstream()
    assert play.stats.refused.refusals == {"forged_producer_id": 1}


def test_the_batches_of_an_idempotent_client_pass_untouched() -> None:
    play = Play()
    frame = play.frame(produce(batch(b"a", producer_id=5, producer_epoch=1, base_sequence=9)), 9)
    wanted = bytes(frame)
    play.session.request(frame, 1.0)
    assert bytes(play.session.to_upstream[0]) == wanted
    assert play.gate.producer.lane is not None
    assert play.stats.produce.batches_stamped == 0


def test_without_idempotence_batches_pass_unstamped() -> None:
    play = Play(idempotence=False)
    play.ask(produce(batch(b"a"), acks=1), 8)
    _, _, request = play.sent()
    assert (stamps(request), request.acks) == ([(-1, -1, -1)], 1)


@pytest.mark.parametrize("more", [{}, {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}])
@pytest.mark.parametrize("version", [10, 12])
def test_node_endpoints_of_produce_name_kproxy_or_nothing(version: int, more: dict[str, int]) -> None:
    """KIP-951: a broker names the new leader's address beside an error."""
    play = Play()
    play.ask(produce(batch(b"a", **more)), version)
    _, correlation_id, _ = play.sent()
    answer = produced(ErrorCode.MESSAGE_TOO_LARGE)
    answer.node_endpoints = [ProduceResponseNodeEndpoint(2, "h2", 9092), ProduceResponseNodeEndpoint(3, "h3", 9093)]
    unknown = play.reply(answer, version, correlation_id)
    if more:
        assert unknown == [(3, Address("h3", 9093))]
        frame = bytearray(answer_frame(answer, version, correlation_id))
        play.session.response(frame, 2.0, learnt=True)
    told = play.answer()
    assert results(told) == [(ErrorCode.MESSAGE_TOO_LARGE, -1)]
    assert [(row.host, row.port) for row in told.node_endpoints] == ([("proxy", 1002)] if more else [])


def answer_frame(message: ProduceResponse, version: int, correlation_id: int) -> bytes:
    from kproxy.codec.header import encode_response

    return encode_response(message, version, correlation_id)


def test_a_relayed_answer_without_an_error_is_not_touched_though_it_could_name_addresses() -> None:
    play = Play()
    play.ask(produce(batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0)), 10)
    frame = answer_frame(produced(0), 10, play.sent()[1])
    play.session.response(bytearray(frame), 2.0)
    assert b"".join(map(bytes, play.session.to_client)) == frame


def test_fetch_v16_is_asked_at_v15_so_that_no_address_comes() -> None:
    play = Play(software="apache-kafka-java")
    play.ask(FetchRequest(max_wait_ms=5), 17)
    version, correlation_id, _ = play.sent()
    assert version == 15
    play.reply(FetchResponse(), version, correlation_id)
    assert play.answer().node_endpoints == []


# -- order, loss, recovery


def test_answers_wait_for_their_turn() -> None:
    play = Play()
    play.ask(produce(batch(b"a")), 8)
    play.ask(ProduceRequest(acks=9), 8)
    _, first, _ = play.sent()
    assert play.answers() == []
    play.reply(produced(0), 8, first)
    assert len(play.answers()) == 2


def test_a_lost_connection_keeps_batches_and_fails_what_else_is_owed() -> None:
    play = Play()
    play.ask(produce(batch(b"a")), 8)
    play.ask(HeartbeatRequest(), 0)
    play.upstream()
    play.session.disconnected(3.0)
    assert play.gate.recovering
    assert play.gate.producer.in_flight == 0
    assert play.stats.produce.sends_in_flight == 0
    assert play.commands() == [Resend(play.gate)]  # the connection stays open: the batch's response comes first
    (track,) = play.gate.unsettled()
    track.answered(track.sends[0], 0, 5, -1)
    play.gate.progressed(4.0)
    assert results(play.answer()) == [(0, 5)]
    assert play.commands() == [Close()]


def test_a_success_of_a_batch_that_was_sent_again_counts_from_when_it_was_received() -> None:
    """Else what another client was taken after the last request of this one, and written before, looks like a loss."""
    play, losses = Play(), list[Loss]()
    configure(play.ctx, ends=KnownEnds(losses.append))
    play.ask(produce(batch(b"a")), 8)
    play.session.disconnected(3.0)
    (track,) = play.gate.unsettled()
    track.answered(track.sends[0], 0, 9, -1)
    play.gate.progressed(5.0)
    other = Send(Track(track.key, 7, 0), memoryview(b""), 1, 4.5, 0, 0, base_offset=4)
    play.ctx.services.ends.written([other], 6.0)
    assert losses == []
    other.taken_at = 5.5
    play.ctx.services.ends.written([other], 6.0)
    assert [loss.records for loss in losses] == [6]


def test_batches_are_sent_again_once_whatever_else_is_lost() -> None:
    play = Play()
    play.ask(produce(batch(b"a")), 8)
    play.ask(produce(batch(b"b")), 8)
    play.session.disconnected(3.0)
    assert play.commands() == [Resend(play.gate)]
    play.gate.abandon()
    assert not play.commands()


def test_a_session_that_gave_up_holds_nothing_and_takes_nothing_more() -> None:
    play = Play()
    play.ask(produce(batch(b"a")), 8)
    play.ask(produce(batch(b"b")), 8)
    play.session.disconnected(3.0)
    play.gate.abandon()
    assert not (play.gate.producer.is_open or play.gate.producer.waits)
    assert play.ask(produce(batch(b"c")), 8) == AwaitProgress()


def test_the_shell_is_asked_once_to_end_the_connection() -> None:
    play = Play()
    play.session.close()
    play.session.close()
    assert play.commands() == [Close()]


def test_nothing_is_taken_while_batches_are_sent_again_and_what_waited_joins_them() -> None:
    play = Play()
    play.ask(produce(batch(b"a")), 8)
    play.ask(produce(batch(b"b")), 8)
    play.upstream()
    play.session.disconnected(3.0)
    assert play.ask(HeartbeatRequest(), 0) == AwaitProgress()
    for offset in (5, 6):
        (track,) = play.gate.unsettled()
        track.answered(track.sends[0], 0, offset, -1)
        assert play.gate.requeue() is (offset == 5)
    play.gate.recovered(4.0)
    assert [results(answer) for answer in play.answers()] == [[(0, 5)], [(0, 6)]]
    assert play.stats.produce.sends_in_flight == 0
    assert play.stats.produce.batches_stamped == 2
    assert play.ask(HeartbeatRequest(), 0) == Connect()


def test_an_unreadable_answer_leaves_its_batches_to_be_sent_again() -> None:
    play = Play()
    play.ask(produce(batch(b"a")), 8)
    _, correlation_id, _ = play.sent()
    with pytest.raises(RemoteProtocolError):
        play.session.response(bytearray(b"\0\0\0\x0c" + correlation_id.to_bytes(4, "big") + b"\x7f" * 8), 2.0)
    play.session.disconnected(3.0)
    assert play.gate.producer.in_flight == 0
    assert len(play.gate.unsettled()) == 1


@pytest.mark.parametrize("correlation_id", [0, 2, -1])
def test_an_answer_to_another_request_is_refused(correlation_id: int) -> None:
    play = Play()
    play.ask(HeartbeatRequest(), 0)
    with pytest.raises(RemoteProtocolError):
        play.reply(HeartbeatResponse(), 0, correlation_id)


def test_an_answer_that_nobody_asked_for_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        Play().reply(HeartbeatResponse(), 0, 1)


def test_requests_are_held_up_beyond_the_limit_and_one_that_is_longer_passes_alone() -> None:
    play = Play(held_bytes=100)
    assert play.ask(HeartbeatRequest(group_id="g" * 500), 0) is None
    assert play.ask(HeartbeatRequest(), 0) == AwaitProgress()
    assert play.session.blocked
    play.reply(HeartbeatResponse(), 0, play.sent()[1])
    assert play.session.held_bytes == 0
    assert play.ask(HeartbeatRequest(), 0) is None


def test_a_lane_is_needed_only_for_what_is_stamped() -> None:
    play = Play()
    play.gate.producer.lane = play.gate.member = None
    assert play.ask(InitProducerIdRequest(), 0) is None if ApiKey.INIT_PRODUCER_ID in KAFKA_44 else True
    assert play.ask(produce(batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0)), 8) is None
    assert play.ask(produce(batch(b"a")), 8) == LeaseProducerId()


def test_a_request_over_a_connection_whose_client_has_left_it_for_another_ends_it() -> None:
    play = Play()
    assert play.gate.member is not None
    play.gate.member.leave(1.0)
    with pytest.raises(LocalProtocolError):
        play.ask(produce(batch(b"a")), 8)


# -- SASL


def test_bare_tokens_follow_a_handshake_v0() -> None:
    """KIP-152: sized tokens without a header, as librdkafka's and Java's clients before 1.0 sent them."""
    play = Play()
    play.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0)
    version, _, _ = play.sent()
    assert version == 1
    play.reply(SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]), version, 1)
    assert play.answer().error_code == 0
    for token, back in ((b"n,,n=u,r=1", b"r=12,s=x,i=1"), (b"c=biws,p=3", b"v=4")):
        assert play.session.request(bytearray(len(token).to_bytes(4, "big") + token), 1.0) is None
        version, correlation_id, request = play.sent()
        assert request.auth_bytes == token
        play.reply(SaslAuthenticateResponse(auth_bytes=back), version, correlation_id)
        assert b"".join(map(bytes, play.session.to_client)) == len(back).to_bytes(4, "big") + back
        play.session.to_client.clear()
    play.ask(HeartbeatRequest(), 0)
    assert isinstance(play.sent()[2], HeartbeatRequest)


def test_a_refused_bare_token_ends_the_connection_as_in_the_old_way() -> None:
    play = Play()
    play.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    play.sent()
    play.reply(SaslHandshakeResponse(mechanisms=["PLAIN"]), 1, 1)
    play.session.request(bytearray(b"\0\0\0\x04\0u\0p"), 1.0)
    version, correlation_id, _ = play.sent()
    play.reply(SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED), version, correlation_id)
    assert play.link.finished


def test_bytes_after_a_request_are_ignored_as_a_broker_does() -> None:
    """librdkafka 2 sends three after a Metadata request for all topics (seen with 2.16.1)."""
    play = Play()
    frame = play.frame(MetadataRequest(topics=None), 13) + b"\x01\x00\x00"
    frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    assert play.session.request(frame, 1.0) is None
    assert bytes(play.session.to_upstream.pop()) == bytes(frame)
    play.reply(MetadataResponse(), 13, 1)
    assert play.answer().brokers == []


# -- long responses


def many_topics(count: int) -> MetadataResponse:
    brokers = [MetadataResponseBroker(1, "h1", 9091)]
    return MetadataResponse(brokers=brokers, topics=[MetadataResponseTopic(name=f"t{n}") for n in range(count)])


def long_response(play: Play, topics: int) -> bytearray:
    """The broker's response to a client that has asked for all topics."""
    play.ask(MetadataRequest(topics=None), 1)
    version, correlation_id, _ = play.sent()
    return bytearray(encode_response(many_topics(topics), version, correlation_id))


def test_a_long_response_is_decoded_and_encoded_by_another_thread_and_counted_meanwhile() -> None:
    play = Play(held_bytes=1 << 30)
    frame = long_response(play, 6_000)
    empty = play.session.held_bytes
    assert play.session.decodes()
    assert play.session.decoded_bytes(frame) >= 6_000 * 270
    work = play.session.long_work(frame)
    assert work is not None
    work()
    assert play.session.response(frame, 2.0) == []
    assert play.session.held_bytes - empty == (6_000 + 1) * RESPONSE_ELEMENT_BYTES
    play.ask(HeartbeatRequest(), 0)
    version, correlation_id, _ = play.sent()
    play.reply(HeartbeatResponse(), version, correlation_id)
    assert not play.session.to_client, "the long one comes first"
    (encode,) = play.commands()
    assert isinstance(encode, Encode)
    play.session.encoded(encode.slot, encode.encode(), 3.0)
    first, second = play.answers()
    assert (len(first.topics), second) == (6_000, HeartbeatResponse())
    assert first.brokers[0].host == "proxy"
    assert not play.session.held_bytes


@pytest.mark.parametrize(("topics", "long"), [(100, False), (4_000, False), (5_000, True)])
def test_a_response_is_long_by_its_array_elements(topics: int, long: bool) -> None:
    play = Play()
    frame = long_response(play, topics)
    assert (play.session.long_work(frame) is not None) == long


def test_a_response_of_more_elements_than_there_is_memory_for_is_not_decoded() -> None:
    play = Play()
    configure(play.ctx, max_response_elements=6_000)
    frame = long_response(play, 6_000)
    work = play.session.long_work(frame)
    assert work is not None
    with pytest.raises(TooManyElements):
        work()
    play = Play()
    configure(play.ctx, max_response_elements=50)
    frame = long_response(play, 50)
    with pytest.raises(TooManyElements):
        play.session.response(frame, 2.0)
