"""Share groups: what kproxy's own transactions have written is refused, and addresses are kproxy's."""

from dataclasses import replace

import pytest

from kproxy.budget import unbounded
from kproxy.codec._generated.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kproxy.codec._generated.share_acknowledge import ShareAcknowledgeResponseNodeEndpoint as AcknowledgeEndpoint
from kproxy.codec._generated.share_fetch import (
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchResponseAcquiredRecords,
    ShareFetchResponseNodeEndpoint,
    ShareFetchResponsePartitionData,
    ShareFetchResponseShareFetchableTopicResponse,
)
from kproxy.codec._generated.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.proxy.handlers import handler_of, share_groups
from kproxy.proxy.handlers.base import Exchange
from kproxy.txn.ids import TXN_BITS
from kproxy.txn.views import Views
from tests.proxy.playbook import KAFKA_44, Play, context

SHARES = {**KAFKA_44, ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1), ApiKey.SHARE_ACKNOWLEDGE: (1, 2)}
RECORDS = [Record(0, 7, None, b"v"), Record(1, 7, None, b"w")]
PLAIN = bytes(build_batch(RECORDS, producer_id=5, producer_epoch=0, base_sequence=0))
OWN = bytes(build_batch(RECORDS, base_offset=2, producer_id=TXN_BITS | 5, producer_epoch=0, base_sequence=0))


def fetched(records: bytes) -> ShareFetchResponse:
    row = ShareFetchResponsePartitionData(3, records=records)
    row.acquired_records = [ShareFetchResponseAcquiredRecords(0, 3, 1)]
    topic = ShareFetchResponseShareFetchableTopicResponse(bytes(16), [row])
    return ShareFetchResponse(responses=[topic], node_endpoints=[ShareFetchResponseNodeEndpoint(2, "h2", 9092)])


def told(records: bytes) -> ShareFetchResponse:
    play = Play(served=SHARES)
    play.ask(ShareFetchRequest(group_id="g", member_id="m"), 2)
    version, correlation_id, _ = play.sent()
    play.reply(fetched(records), version, correlation_id)
    found: ShareFetchResponse = play.answer()
    return found


def test_records_that_nobody_has_to_decide_are_delivered_and_leaders_have_kproxys_addresses() -> None:
    answer = told(PLAIN)
    (row,) = answer.responses[0].partitions
    assert (row.error_code, bytes(row.records or b""), len(row.acquired_records)) == (0, PLAIN, 1)
    assert [(each.host, each.port) for each in answer.node_endpoints] == [("proxy", 1002)]


@pytest.mark.parametrize("records", [OWN, PLAIN + OWN, b"\0" * 100])
def test_no_record_of_a_transaction_that_kproxy_decides_is_delivered(records: bytes) -> None:
    """Nor what can't be read."""
    (row,) = told(records).responses[0].partitions
    assert (row.error_code, row.records, row.acquired_records) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"", [])
    assert "transactions that kproxy decides" in (row.error_message or "")


def test_a_long_response_is_looked_through_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    handler, ctx = handler_of(ApiKey.SHARE_FETCH), context(SHARES)
    exchange = Exchange(ShareFetchRequest(), 2, 2)
    assert handler.long_work(ctx, exchange, fetched(PLAIN), unbounded()) is None
    response = fetched(PLAIN * 20_000 + OWN)
    work = handler.long_work(ctx, exchange, response, unbounded())
    assert work is not None
    work()
    assert response.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    looks = []
    monkeypatch.setattr(share_groups, "has_transactions", looks.append)
    handler.lower(ctx, exchange, fetched(PLAIN), unbounded())
    assert looks == []  # the loop does not look again


def test_no_more_is_acquired_than_a_fetch_may_bring() -> None:
    play = Play(served=SHARES)
    play.ctx.policy = replace(play.ctx.policy, fetch_max_bytes=1000)
    for asked in 500, 1 << 30:
        play.ask(ShareFetchRequest(group_id="g", member_id="m", max_bytes=asked), 2)
    assert [request.max_bytes for _, _, request in play.upstream()] == [500, 1000]


def test_acknowledgements_are_relayed_and_leaders_have_kproxys_addresses() -> None:
    play = Play(served=SHARES)
    play.ask(ShareAcknowledgeRequest(group_id="g", member_id="m"), 2)
    version, correlation_id, _ = play.sent()
    play.reply(ShareAcknowledgeResponse(node_endpoints=[AcknowledgeEndpoint(2, "h2", 9092)]), version, correlation_id)
    assert [(each.host, each.port) for each in play.answer().node_endpoints] == [("proxy", 1002)]


class Written(Views):
    """Transactions have written to one topic."""

    def has_written(self, topic: str) -> bool:
        return topic == "own"


@pytest.mark.parametrize(
    ("names", "error", "why"),
    [
        (["a", "own"], ErrorCode.INVALID_REQUEST, "topic own is closed to share groups"),
        (["__kproxy_producer_state"], ErrorCode.TOPIC_AUTHORIZATION_FAILED, "a topic of kproxy's own"),
    ],
)
def test_a_subscription_that_can_not_be_served_is_refused_with_the_reason(
    names: list[str], error: ErrorCode, why: str
) -> None:
    play = Play(served=SHARES)
    play.ctx.services = replace(play.ctx.services, views=Written())
    play.ask(ShareGroupHeartbeatRequest("g", "m", 0, subscribed_topic_names=names), 1)
    assert not play.upstream()
    answer: ShareGroupHeartbeatResponse = play.answer()
    assert answer.error_code == error
    assert why in (answer.error_message or "")


@pytest.mark.parametrize("names", [None, [], ["a", "b"]])
def test_every_other_heartbeat_is_relayed(names: list[str] | None) -> None:
    play = Play(served=SHARES)
    play.ctx.services = replace(play.ctx.services, views=Written())
    play.ask(ShareGroupHeartbeatRequest("g", "m", 4, subscribed_topic_names=names), 1)
    version, correlation_id, request = play.sent()
    assert request.subscribed_topic_names == names
    play.reply(ShareGroupHeartbeatResponse(member_epoch=4), version, correlation_id)
    assert play.answer().member_epoch == 4
