"""What admin tools receive about kproxy's transactions, and what they may end."""

import pytest

from kproxy.codec._generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeProducersResponse,
    DescribeProducersResponsePartitionResponse,
    DescribeProducersResponseProducerState,
    DescribeProducersResponseTopicResponse,
)
from kproxy.codec._generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransactionState,
)
from kproxy.codec._generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransactionState,
)
from kproxy.codec._generated.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestWritableTxnMarker,
    WriteTxnMarkersRequestWritableTxnMarkerTopic,
)
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.proxy.coordinator_requests import AbortRequest
from kproxy.proxy.permits import Permits
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry, encode
from kproxy.txn.view import LogPosition
from kproxy.txn.views import Views
from tests.proxy.playbook import KAFKA_44, Play, configure
from tests.txn import bodies

SERVED = {
    **KAFKA_44,
    ApiKey.LIST_TRANSACTIONS: (0, 2),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.WRITE_TXN_MARKERS: (1, 2),
}
OPEN, DONE = bodies.producer(4000, 0), bodies.producer(4001, 0)
CLIENT = Producer(4000, 3)
BEGAN_MS = 60_000


def play(**options: object) -> Play:
    """A session that knows two ids of kproxy's: ``open`` since a minute after 1970, and ``done``."""
    views = Views()

    def read(name: str, *said: Message) -> None:
        for offset, body in enumerate(said):
            views.apply(0, LogPosition(offset, BEGAN_MS), *encode(Entry(name, body)))

    views.restart(0, 0)
    read("open", bodies.claim(1, OPEN, client=CLIENT), bodies.partitions(1, OPEN, {("t", 1): 40, ("u", 0): 7}))
    read("done", bodies.claim(2, DONE, client=Producer(7, 0)), bodies.decision(2, DONE, True, [DONE]))
    made = Play(served=SERVED)
    ctx = made.ctx
    configure(ctx, views=views)
    ctx.permits = Permits(is_admin=True)
    for name, value in options.items():
        setattr(ctx, name, value)
    return made


class TestList:
    def ask(self, made: Play, **filters: object) -> list[tuple[str, int, str]]:
        """What is listed, over all brokers."""
        found: list[tuple[str, int, str]] = []
        for node_id in (1, 2):
            made.ctx.node_id = node_id
            made.ask(ListTransactionsRequest(**filters), 2)  # type: ignore[arg-type]
            version, correlation_id, _ = made.sent()
            brokers = [ListTransactionsResponseTransactionState(f"native-{node_id}", 9, "Ongoing")]
            made.reply(ListTransactionsResponse(transaction_states=brokers), version, correlation_id)
            rows = made.answer().transaction_states
            found += [(row.transactional_id, row.producer_id, row.transaction_state) for row in rows]
        return sorted(row for row in found if not row[0].startswith("native"))

    def test_each_is_listed_by_one_broker(self) -> None:
        assert self.ask(play()) == [("done", 7, "CompleteCommit"), ("open", 4000, "Ongoing")]

    @pytest.mark.parametrize(
        ("filters", "names"),
        [
            ({"state_filters": ["Ongoing", "Empty"]}, ["open"]),
            ({"producer_id_filters": [7]}, ["done"]),
            ({"duration_filter": 30_000}, ["open"]),
            ({"duration_filter": 50_000}, []),
            ({"transactional_id_pattern": "o.*"}, ["open"]),
            ({"transactional_id_pattern": "one"}, []),
        ],
    )
    def test_filters_hold_for_kproxys_too(self, filters: dict[str, object], names: list[str]) -> None:
        made = play()
        made.asked_at = made.answered_at = 100.0
        assert [row[0] for row in self.ask(made, **filters)] == names


class TestDescribe:
    def test_an_id_of_kproxys_is_not_asked_of_the_broker(self) -> None:
        made = play()
        made.ask(DescribeTransactionsRequest(["open"]), 0)
        (row,) = made.answer().transaction_states
        assert (row.transaction_state, row.producer_id, row.producer_epoch) == ("Ongoing", *CLIENT)
        assert (row.transaction_start_time_ms, row.transaction_timeout_ms) == (BEGAN_MS, 60_000)
        assert [(topic.topic, topic.partitions) for topic in row.topics] == [("t", [1]), ("u", [0])]
        assert not made.upstream()

    def test_others_are(self) -> None:
        made = play()
        made.ask(DescribeTransactionsRequest(["native", "done"]), 0)
        version, correlation_id, request = made.sent()
        assert request.transactional_ids == ["native"]
        native = DescribeTransactionsResponseTransactionState(transactional_id="native")
        made.reply(DescribeTransactionsResponse(transaction_states=[native]), version, correlation_id)
        assert [row.transactional_id for row in made.answer().transaction_states] == ["native", "done"]


def test_producers_go_by_their_clients_names_and_what_is_open_has_its_start() -> None:
    made = play()
    made.ask(DescribeProducersRequest([DescribeProducersRequestTopicRequest("t", [1])]), 0)
    version, correlation_id, _ = made.sent()
    rows = [
        DescribeProducersResponseProducerState(*OPEN, 4, 5, -1, -1),
        DescribeProducersResponseProducerState(*DONE, 4, 5, -1, -1),
        DescribeProducersResponseProducerState(77, 0, 4, 5, 0, 12),
    ]
    part = DescribeProducersResponsePartitionResponse(1, active_producers=rows)
    made.reply(
        DescribeProducersResponse(0, [DescribeProducersResponseTopicResponse("t", [part])]), version, correlation_id
    )
    told = made.answer().topics[0].partitions[0].active_producers
    assert [(row.producer_id, row.producer_epoch, row.current_txn_start_offset) for row in told] == [
        (4000, 3, 40),
        (7, 0, -1),
        (77, 0, 12),
    ]


class TestMarkers:
    def markers(self, client: Producer, *, committed: bool = False) -> WriteTxnMarkersRequest:
        topics = [WriteTxnMarkersRequestWritableTxnMarkerTopic("t", [1])]
        return WriteTxnMarkersRequest([WriteTxnMarkersRequestWritableTxnMarker(*client, committed, topics)])

    def test_the_abort_of_what_is_open_is_the_coordinators(self) -> None:
        made = play()
        request = self.markers(CLIENT)
        made.ask(request, 1)
        assert made.coordinator_call().ask == AbortRequest("open", CLIENT, request)

    @pytest.mark.parametrize(
        ("client", "committed", "admin"),
        [
            (CLIENT, True, True),
            (CLIENT, False, False),
            (Producer(4000, 2), False, True),
            (Producer(7, 0), False, True),
            (OPEN, False, True),
        ],
        ids=["commit", "no operator", "another epoch", "not open", "as it stands in batches"],
    )
    def test_any_other_is_refused(self, client: Producer, committed: bool, admin: bool) -> None:
        made = play(permits=Permits(is_admin=admin))
        made.ask(self.markers(client, committed=committed), 1)
        (marker,) = made.answer().markers
        assert marker.topics[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert not made.session.commands
        assert not made.upstream()
