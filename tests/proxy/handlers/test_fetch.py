"""Fetch: converted for old versions, re-encoded where a client can't read a codec, relayed otherwise."""

from typing import Any

import pytest

from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchRequestFetchPartition,
    FetchRequestFetchTopic,
    FetchRequestForgottenTopic,
    FetchResponse,
    FetchResponseFetchableTopicResponse,
    FetchResponseLeaderIdAndEpoch,
    FetchResponseNodeEndpoint,
    FetchResponsePartitionData,
)
from kproxy.codec.batch import iter_records, read_header
from kproxy.codec.header import encode_response
from kproxy.codec.messages import ApiKey, ErrorCode
from tests.proxy.playbook import KAFKA_44, Play, batch

UNREADABLE = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
TOPIC_ID = b"t" * 16


def fetch(*offsets: int, **more: Any) -> FetchRequest:
    rows = [
        FetchRequestFetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000)
        for index, offset in enumerate(offsets)
    ]
    return FetchRequest(max_wait_ms=5, min_bytes=1, topics=[FetchRequestFetchTopic(topic="t", partitions=rows)], **more)


def fetched(*sets: bytes | int, **more: Any) -> FetchResponse:
    """A response with a record set or an error for each partition."""
    rows = [
        FetchResponsePartitionData(partition_index=index, high_watermark=99, records=data)
        if isinstance(data, bytes)
        else FetchResponsePartitionData(partition_index=index, error_code=data, high_watermark=-1, records=b"")
        for index, data in enumerate(sets)
    ]
    return FetchResponse(responses=[FetchResponseFetchableTopicResponse(topic="t", partitions=rows)], **more)


def row_of(answer: FetchResponse, index: int = 0) -> FetchResponsePartitionData:
    return answer.responses[0].partitions[index]


def values(answer: FetchResponse, index: int = 0) -> list[bytes | None]:
    return [
        record.value for record in iter_records(row_of(answer, index).records or b"", max_decompressed_bytes=1 << 20)
    ]


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("codec", range(5))
def test_old_versions_get_old_message_sets(version: int, magic: int, codec: int) -> None:
    """Finding 10: zstd, too, which no old client can read: as gzip. Finding 11: the set is not padded."""
    play = Play()
    play.ask(fetch(5), version)
    asked, correlation_id, request = play.sent()
    assert asked == 11
    assert (request.session_id, request.session_epoch) == (0, -1)
    play.reply(fetched(batch(b"a", b"b", codec=codec, base_offset=5)), asked, correlation_id)
    answer = play.answer()
    data = bytes(row_of(answer).records or b"")
    assert data[16] == magic
    assert values(answer) == [b"a", b"b"]
    size = int.from_bytes(data[8:12], "big") + 12
    if codec:
        assert size == len(data)
        assert data[17] & 7 == (GZIP if codec == ZSTD else codec)
    assert play.stats.produce.records_converted == {("down", magic): 2}


def test_lz4_for_magic_0_has_the_checksum_that_old_clients_want() -> None:
    """Finding 9: the broken one in magic 0, the right one in magic 1."""
    checksums = []
    for version in (1, 2):
        play = Play()
        play.ask(fetch(0), version)
        asked, correlation_id, _ = play.sent()
        play.reply(fetched(batch(b"a" * 100, codec=LZ4)), asked, correlation_id)
        data = bytes(row_of(play.answer()).records or b"")
        frame = data[data.index(b"\x04\x22\x4d\x18") :]
        checksums.append(frame[6])
    assert checksums[0] != checksums[1]


def test_a_client_may_have_codecs_of_its_own() -> None:
    """Finding 10: kafka-node hands on lz4's bytes as data, no-kafka dies of snappy."""
    for version in (2, 4, 11, 16):
        play = Play(transcode={"me": {LZ4: GZIP, SNAPPY: 0}})
        request = fetch(0, 0)
        if version >= 13:
            request.topics[0].topic, request.topics[0].topic_id = "", TOPIC_ID
        play.ask(request, version)
        asked, correlation_id, _ = play.sent()
        answer = fetched(batch(b"a" * 50, codec=LZ4), batch(b"b" * 50, codec=SNAPPY))
        if version >= 13:
            answer.responses[0].topic, answer.responses[0].topic_id = "", TOPIC_ID
        play.reply(answer, asked, correlation_id)
        told = play.answer()
        assert [values(told, index) for index in (0, 1)] == [[b"a" * 50], [b"b" * 50]]
        for index, codec in enumerate((GZIP, 0)):
            data = bytes(row_of(told, index).records or b"")
            assert data[22 if version >= 4 else 17] & 7 == codec


def test_a_client_whose_codecs_are_set_gets_no_brokers_address() -> None:
    """KIP-951, Fetch v16 and later."""
    play = Play(transcode={"me": {LZ4: GZIP}})
    request = fetch(0)
    request.topics[0].topic, request.topics[0].topic_id = "", TOPIC_ID
    play.ask(request, 17)
    asked, correlation_id, _ = play.sent()
    answer = fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    answer.responses[0].topic, answer.responses[0].topic_id = "", TOPIC_ID
    row_of(answer).current_leader = FetchResponseLeaderIdAndEpoch(2, 7)
    answer.node_endpoints = [FetchResponseNodeEndpoint(2, "h2", 9092)]
    play.reply(answer, asked, correlation_id)
    told = play.answer()
    assert told.node_endpoints == []
    assert row_of(told).current_leader.leader_id == 2


@pytest.mark.parametrize("version", range(4, 10))
def test_zstd_is_reencoded_for_versions_that_cannot_carry_it(version: int) -> None:
    """Finding 10: a broker before 4.0 says error 76, which many clients swallow and hang on."""
    play = Play()
    play.ask(fetch(0, 3), version)
    asked, correlation_id, _ = play.sent()
    assert asked == version
    play.reply(fetched(UNREADABLE, batch(b"b")), asked, correlation_id)
    asked, correlation_id, request = play.sent()
    assert (asked, request.session_id, request.session_epoch) == (10, 0, -1)
    assert [row.fetch_offset for row in request.topics[0].partitions] == [0, 3]
    play.reply(fetched(batch(b"a", codec=ZSTD), batch(b"b"), session_id=0), asked, correlation_id)
    answer = play.answer()
    assert read_header(row_of(answer).records or b"").attributes & 7 == GZIP
    assert (values(answer), values(answer, 1)) == ([b"a"], [b"b"])
    play.ask(fetch(1), version)
    assert play.sent()[0] == 10  # from now on at once


@pytest.mark.parametrize("version", range(4, 10))
def test_zstd_that_a_new_broker_sends_all_the_same_is_reencoded(version: int) -> None:
    """Kafka 4 (KIP-724) no longer looks."""
    play = Play()
    play.ask(fetch(0), version)
    asked, correlation_id, _ = play.sent()
    play.reply(fetched(batch(b"a", codec=ZSTD)), asked, correlation_id)
    answer = play.answer()
    assert read_header(row_of(answer).records or b"").attributes & 7 == GZIP
    assert values(answer) == [b"a"]


def test_a_client_with_an_incremental_session_is_told_to_begin_again_when_zstd_comes() -> None:
    """KIP-227: what the session left out can't be asked for in its place."""
    play = Play(software="apache-kafka-java")
    play.ask(fetch(session_id=77, session_epoch=4, forgotten_topics_data=[FetchRequestForgottenTopic("u")]), 7)
    asked, correlation_id, _ = play.sent()
    play.reply(fetched(UNREADABLE, session_id=77), asked, correlation_id)
    assert play.answer().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    play.ask(fetch(session_id=77, session_epoch=5), 7)  # one that was in flight
    assert play.answer().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    play.ask(fetch(0, session_epoch=0), 7)
    asked, correlation_id, request = play.sent()
    assert (asked, request.session_epoch) == (10, -1)
    play.reply(fetched(batch(b"a", codec=ZSTD)), asked, correlation_id)
    assert (play.answer().session_id, play.session.idle) == (0, True)


@pytest.mark.parametrize("version", [4, 9, 10, 11, 15])
def test_what_needs_no_change_is_relayed_to_the_byte_session_and_all(version: int) -> None:
    play = Play(software="apache-kafka-java")
    request = fetch(0, session_id=5, session_epoch=2) if version >= 7 else fetch(0)
    if version >= 13:
        request.topics[0].topic, request.topics[0].topic_id = "", TOPIC_ID
    frame = play.frame(request, version)
    wanted = bytes(frame)
    play.session.request(frame, 1.0)
    assert bytes(play.session.to_upstream[0]) == wanted


@pytest.mark.parametrize("version", [0, 2, 4])
def test_an_old_version_on_a_newer_broker_than_any_today_is_lowered(version: int) -> None:
    play = Play(served={**KAFKA_44, ApiKey.FETCH: (12, 18)})
    play.ask(fetch(0), version)
    asked, correlation_id, _ = play.sent()
    assert asked == 12
    answer = fetched(batch(b"a"))
    row_of(answer).current_leader = FetchResponseLeaderIdAndEpoch(2, 7)
    row_of(answer).preferred_read_replica = 2
    play.reply(answer, asked, correlation_id)
    assert values(play.answer()) == [b"a"]


def test_a_conversion_that_leaves_nothing_reads_on_and_remembers_where() -> None:
    """Otherwise a client that continues after the last record it saw would ask the same again for ever."""
    play = Play()
    play.ask(fetch(10), 2)
    control = batch(b"\0\0\0\0", is_control=True, is_transactional=True, producer_id=1, producer_epoch=0)
    for round_number in range(3):
        asked, correlation_id, request = play.sent()
        offset = 10 + round_number
        assert [row.fetch_offset for row in request.topics[0].partitions] == [offset]
        data = offset.to_bytes(8, "big") + control[8:]
        play.answered_at = play.asked_at + 0.0025 * round_number  # of the 5 ms that the client waits
        play.reply(fetched(data), asked, correlation_id)
    assert row_of(play.answer()).records == b""
    play.ask(fetch(10), 2)
    asked, correlation_id, request = play.sent()
    assert request.topics[0].partitions[0].fetch_offset == 13
    play.reply(fetched(batch(b"x", base_offset=13)), asked, correlation_id)
    assert values(play.answer()) == [b"x"]


def test_one_that_has_records_is_not_kept_waiting_for_one_that_has_none() -> None:
    play = Play()
    play.ask(fetch(0, 0), 3)
    asked, correlation_id, _ = play.sent()
    control = batch(b"\0\0\0\0", is_control=True, is_transactional=True, producer_id=1, producer_epoch=0)
    play.reply(fetched(control, batch(b"b")), asked, correlation_id)
    answer = play.answer()
    assert (row_of(answer).records, values(answer, 1)) == (b"", [b"b"])


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, 0, ErrorCode.OFFSET_OUT_OF_RANGE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.KAFKA_STORAGE_ERROR, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_errors_are_those_that_an_old_client_knows(said: int, version: int, told: int) -> None:
    play = Play()
    play.ask(fetch(0), version)
    asked, correlation_id, _ = play.sent()
    play.reply(fetched(said), asked, correlation_id)
    row = row_of(play.answer())
    assert (row.error_code, row.high_watermark) == (told, -1)


def test_what_is_corrupt_or_too_long_unpacked_is_an_error_of_its_partition_alone() -> None:
    play = Play()
    play.ask(fetch(0, 0, 0), 2)
    asked, correlation_id, _ = play.sent()
    bomb = batch(bytes(2 << 20), codec=GZIP)
    damaged = bytearray(batch(b"x" * 200, codec=GZIP))
    damaged[80] ^= 0xFF
    play.reply(fetched(bytes(damaged), bomb, batch(b"fine")), asked, correlation_id)
    answer = play.answer()
    errors = [row_of(answer, index).error_code for index in range(3)]
    assert errors == [ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, 0]
    assert values(answer, 2) == [b"fine"]


def test_the_bytes_asked_for_on_behalf_of_an_old_client_are_bounded() -> None:
    play = Play()
    request = fetch(0, 0)
    for row in request.topics[0].partitions:
        row.partition_max_bytes = 2**31 - 1
    play.ask(request, 1)
    assert play.sent()[2].max_bytes == 1 << 20
    play.ask(fetch(0, 0), 1)
    assert play.sent()[2].max_bytes == 2000
    play.ask(fetch(0, 0, max_bytes=700), 3)
    assert play.sent()[2].max_bytes == 700


def broker_frame(response: FetchResponse, version: int, correlation_id: int) -> bytearray:
    return bytearray(encode_response(response, version, correlation_id))


def _never(*arguments: object, **options: object) -> None:
    raise AssertionError("converted again")


@pytest.mark.parametrize(
    ("version", "codec", "size"), [(0, GZIP, 10), (2, ZSTD, 10), (3, 0, 200_000), (4, ZSTD, 10), (9, ZSTD, 10)]
)
def test_what_takes_long_is_done_before_the_answer_is_taken(
    version: int, codec: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = []
    for ahead in (False, True):
        play = Play(software="Apache Kafka Java")
        play.ask(fetch(5), version)
        asked, correlation_id, _ = play.sent()
        records = batch(b"a" * size, b"b", codec=codec, base_offset=5) + batch(b"c", codec=codec, base_offset=7)
        frame = broker_frame(fetched(bytes(records)), asked, correlation_id)
        work = play.session.long_work(frame)
        assert work is not None
        if ahead:
            work()
            assert play.stats.produce.records_converted == {}
            monkeypatch.setattr("kproxy.codec.downconvert._convert_all", _never)
            monkeypatch.setattr("kproxy.codec.recode.compress", _never)
        else:
            play.ctx.fetched.conversions = None
        play.session.response(frame, 2.0)
        assert play.ctx.fetched.conversions is None
        answers.append((values(play.answer()), play.stats.produce.records_converted))
    assert answers[0] == answers[1]
    assert answers[0][0] == [b"a" * size, b"b", b"c"]


@pytest.mark.parametrize(("version", "codec"), [(2, 0), (9, GZIP), (9, 0), (11, ZSTD)])
def test_what_is_short_or_stays_as_it_is_is_done_at_once(version: int, codec: int) -> None:
    play = Play(software="Apache Kafka Java")
    play.ask(fetch(5), version)
    asked, correlation_id, _ = play.sent()
    records = batch(b"a", b"b", codec=codec, base_offset=5)
    assert play.session.long_work(broker_frame(fetched(bytes(records)), asked, correlation_id)) is None


def test_what_cannot_be_read_is_an_error_of_its_partition_wherever_it_is_found() -> None:
    play = Play()
    play.ask(fetch(0), 2)
    asked, correlation_id, _ = play.sent()
    damaged = bytearray(batch(b"a" * 100, codec=GZIP))
    damaged[70:90] = bytes(20)
    frame = broker_frame(fetched(bytes(damaged)), asked, correlation_id)
    work = play.session.long_work(frame)
    assert work is not None
    work()
    play.session.response(frame, 2.0)
    assert row_of(play.answer()).error_code == ErrorCode.CORRUPT_MESSAGE
