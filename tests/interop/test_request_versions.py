"""Whose requests the relays have seen, and in which versions."""

from kproxy.codec._generated.add_partitions_to_txn import AddPartitionsToTxnRequest
from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.end_txn import EndTxnRequest
from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest
from kproxy.codec._generated.heartbeat import HeartbeatRequest
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest
from kproxy.codec._generated.produce import ProduceRequest
from kproxy.codec.header import encode_request
from kproxy.codec.messages import Message
from kproxy.testing.relay import Frame
from tests.interop.request_versions import RequestVersions

_GROUP = 0
_TRANSACTION = 1


class _Relay:
    def __init__(self, seen: RequestVersions, number: int) -> None:
        self._watch = seen.watch(number)

    def passes(
        self, connection: int, request: Message, version: int, *, client_id: str = "client", is_answer: bool = False
    ) -> None:
        frame = encode_request(request, version, 1, client_id)
        self._watch(Frame(connection, is_answer, request.API_KEY, frame, dropped=False, upstream=("127.0.0.1", 1)))


def test_a_connection_is_that_of_the_id_which_its_requests_name() -> None:
    seen = RequestVersions()
    one, other = _Relay(seen, 0), _Relay(seen, 1)
    one.passes(1, ApiVersionsRequest(), 4)
    one.passes(1, ApiVersionsRequest(), 3)
    one.passes(1, FindCoordinatorRequest(key="group", key_type=_GROUP), 2)
    one.passes(1, FindCoordinatorRequest(key="a", key_type=_TRANSACTION), 2)
    one.passes(1, InitProducerIdRequest("a", 1), 2)
    one.passes(2, ApiVersionsRequest(), 0)
    one.passes(2, ProduceRequest("b"), 9)
    other.passes(1, AddPartitionsToTxnRequest(v3_and_below_transactional_id="a"), 3)
    other.passes(1, HeartbeatRequest(), 1)
    other.passes(1, EndTxnRequest("a"), 3, is_answer=True)
    other.passes(2, FindCoordinatorRequest(coordinator_keys=["a"], key_type=_TRANSACTION), 4)
    other.passes(3, FindCoordinatorRequest(coordinator_keys=["a"], key_type=_GROUP), 6)
    assert seen.of("a") == {
        "InitProducerId": "2",
        "AddPartitionsToTxn": "3",
        "FindCoordinator": "2 4",
        "ApiVersions": "3 4",
    }
    assert seen.of("b") == {"Produce": "9", "ApiVersions": "0"}
    assert seen.of("a", "b")["ApiVersions"] == "0 3 4"
    assert seen.of("c") == {}


def test_a_client_that_asks_for_versions_on_a_connection_without_an_id_is_known_by_its_client_id() -> None:
    seen = RequestVersions()
    relay = _Relay(seen, 0)
    relay.passes(1, ApiVersionsRequest(), 2, client_id="kafkajs")
    relay.passes(2, ApiVersionsRequest(), 3, client_id="other")
    relay.passes(3, InitProducerIdRequest("a", 1), 1, client_id="kafkajs")
    assert seen.of("a") == {"InitProducerId": "1", "ApiVersions": "2"}
