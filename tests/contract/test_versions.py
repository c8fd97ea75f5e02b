"""Which versions a 4.4 broker tells, serves, and hangs up on."""

import struct

import pytest

from kproxy.codec._generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproxy.codec._generated.create_topics import CreateTopicsRequest
from kproxy.codec._generated.delete_topics import DeleteTopicsRequest
from kproxy.codec._generated.fetch import FetchRequest
from kproxy.codec._generated.list_offsets import ListOffsetsRequest
from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec._generated.offset_commit import OffsetCommitRequest
from kproxy.codec._generated.offset_fetch import OffsetFetchRequest
from kproxy.codec._generated.produce import ProduceRequest
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.testing.cluster_client import ClusterClient, RawConnection
from kproxy.testing.fake_broker.apis import APIS

RANGES = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.API_VERSIONS: (0, 5),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5),
    ApiKey.WRITE_TXN_MARKERS: (1, 2),
    ApiKey.TXN_OFFSET_COMMIT: (0, 6),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DELETE_GROUPS: (0, 3),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2),
}


def _connect(bootstrap: str) -> RawConnection:
    host, _, port = bootstrap.partition(":")
    return RawConnection(host, int(port))


def test_the_table_covers_what_the_fake_serves() -> None:
    assert RANGES.keys() == APIS.keys()


@pytest.mark.parametrize("version", range(6))
def test_api_versions_tells_the_ranges(client: ClusterClient, version: int) -> None:
    request = ApiVersionsRequest()
    if version >= 3:
        request = ApiVersionsRequest(client_software_name="kproxy", client_software_version="1")
    answer = client.any_broker().call(request, version, ApiVersionsResponse)
    told = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    assert {key: told.get(key) for key in RANGES} == RANGES


@pytest.mark.parametrize(
    ("other_cluster", "other_node", "error"),
    [
        (False, False, ErrorCode.NONE),
        (True, False, ErrorCode.REBOOTSTRAP_REQUIRED),
        (False, True, ErrorCode.REBOOTSTRAP_REQUIRED),
        (None, False, ErrorCode.INVALID_REQUEST),
        (False, None, ErrorCode.INVALID_REQUEST),
        (None, None, ErrorCode.NONE),
    ],
)
def test_a_client_that_names_another_cluster_or_node_has_to_bootstrap_again(
    client: ClusterClient, other_cluster: bool | None, other_node: bool | None, error: ErrorCode
) -> None:
    """KIP-1242; None: the client leaves it out."""
    metadata = client.any_broker().call(MetadataRequest(topics=[]), 12, MetadataResponse)
    request = ApiVersionsRequest(client_software_name="kproxy", client_software_version="1")
    if other_cluster is not None:
        request.cluster_id = "another-cluster" if other_cluster else metadata.cluster_id
    if other_node is not None:
        request.node_id = metadata.brokers[0].node_id + other_node
    answer = client.any_broker().call(request, 5, ApiVersionsResponse)
    assert (answer.error_code, bool(answer.api_keys)) == (error, error is ErrorCode.NONE)


@pytest.mark.parametrize("version", [6, 99])
def test_an_unknown_api_versions_version_gets_an_error_in_the_oldest_shape(bootstrap: str, version: int) -> None:
    request = struct.pack(">hhih", ApiKey.API_VERSIONS, version, 77, -1) + b"\0\x02a\x02b\0"
    with _connect(bootstrap) as connection:
        connection.send_bytes(struct.pack(">i", len(request)) + request)
        assert connection.receive_bytes() == struct.pack(">ihihhh", 77, 35, 1, ApiKey.API_VERSIONS, 0, 5)
        assert connection.call(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == 0


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (ProduceRequest(acks=1), 0),
        (ProduceRequest(acks=1), 2),
        (FetchRequest(), 3),
        (ListOffsetsRequest(replica_id=-1), 0),
        (OffsetCommitRequest(group_id="g"), 1),
        (OffsetFetchRequest(group_id="g", topics=[]), 0),
        (CreateTopicsRequest(), 1),
        (DeleteTopicsRequest(), 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else f"v{value}",
)
def test_a_removed_version_closes_the_connection(bootstrap: str, request_: Message, version: int) -> None:
    with _connect(bootstrap) as connection, pytest.raises(ConnectionError):
        connection.call(request_, version)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">hhih", ApiKey.FETCH, 99, 1, -1),
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1) + b"\0\0\0\x09abc",
        b"\0",
        b"",
    ],
    ids=["version too new", "unknown key", "damaged", "short", "empty"],
)
def test_what_cannot_be_understood_closes_the_connection(bootstrap: str, frame: bytes) -> None:
    with _connect(bootstrap) as connection, pytest.raises(ConnectionError):
        connection.send_bytes(struct.pack(">i", len(frame)) + frame)
        connection.receive_bytes()


@pytest.mark.parametrize("length", [-1, 100 * 1024 * 1024 + 1, 2**31 - 1])
def test_an_absurd_length_closes_the_connection(bootstrap: str, length: int) -> None:
    with _connect(bootstrap) as connection, pytest.raises(ConnectionError):
        connection.send_bytes(struct.pack(">i", length))
        connection.receive_bytes()
