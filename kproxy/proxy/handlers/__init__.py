"""One handler for each API key whose requests or answers kproxy changes; all others are relayed, lifted and lowered.

Each is imported when the first client sends such a request.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType

from kproxy.codec.messages import ApiKey
from kproxy.proxy.handlers.base import Handler

#: By API key the module of this package and the class in it.
HANDLERS: Mapping[int, str] = MappingProxyType(
    {
        ApiKey.PRODUCE: "addresses.PassedProduce",
        ApiKey.FETCH: "fetch.Fetch",
        ApiKey.LIST_OFFSETS: "list_offsets.ListOffsets",
        ApiKey.METADATA: "metadata.Metadata",
        ApiKey.OFFSET_COMMIT: "offset_handlers.OffsetCommit",
        ApiKey.OFFSET_FETCH: "offset_handlers.OffsetFetch",
        ApiKey.FIND_COORDINATOR: "addresses.FindCoordinator",
        ApiKey.DELETE_GROUPS: "offset_handlers.DeleteGroups",
        ApiKey.OFFSET_DELETE: "offset_handlers.OffsetDelete",
        ApiKey.SASL_HANDSHAKE: "sasl_handlers.SaslHandshake",
        ApiKey.API_VERSIONS: "api_versions.ApiVersions",
        ApiKey.CREATE_TOPICS: "own_topics.OwnTopics",
        ApiKey.DELETE_TOPICS: "own_topics.OwnTopics",
        ApiKey.DELETE_RECORDS: "own_topics.OwnTopics",
        ApiKey.ALTER_CONFIGS: "own_topics.OwnTopics",
        ApiKey.INIT_PRODUCER_ID: "transaction_handlers.InitProducerId",
        ApiKey.ADD_PARTITIONS_TO_TXN: "transaction_handlers.AddPartitionsToTxn",
        ApiKey.ADD_OFFSETS_TO_TXN: "transaction_handlers.Transactional",
        ApiKey.END_TXN: "transaction_handlers.EndTxn",
        ApiKey.WRITE_TXN_MARKERS: "transaction_admin.WriteTxnMarkers",
        ApiKey.TXN_OFFSET_COMMIT: "transaction_handlers.TxnOffsetCommit",
        ApiKey.LIST_TRANSACTIONS: "transaction_admin.ListTransactions",
        ApiKey.DESCRIBE_TRANSACTIONS: "transaction_admin.DescribeTransactions",
        ApiKey.DESCRIBE_PRODUCERS: "transaction_admin.DescribeProducers",
        ApiKey.SASL_AUTHENTICATE: "sasl_handlers.SaslAuthenticate",
        ApiKey.CREATE_PARTITIONS: "own_topics.OwnTopics",
        ApiKey.ELECT_LEADERS: "own_topics.ElectLeaders",
        ApiKey.INCREMENTAL_ALTER_CONFIGS: "own_topics.OwnTopics",
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: "own_topics.OwnTopics",
        ApiKey.DESCRIBE_CONFIGS: "admin.DescribeConfigs",
        ApiKey.DESCRIBE_CLUSTER: "addresses.DescribeCluster",
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: "topic_pages.DescribeTopicPartitions",
        ApiKey.SHARE_GROUP_HEARTBEAT: "share_groups.ShareGroupHeartbeat",
        ApiKey.SHARE_FETCH: "share_groups.ShareFetch",
        ApiKey.SHARE_ACKNOWLEDGE: "addresses.NodeEndpoints",
    }
)
DEFAULT = Handler()


def handler_of(api_key: int) -> Handler:
    """The handler of an API key."""
    return _loaded(api_key) if api_key in HANDLERS else DEFAULT


@cache
def _loaded(api_key: int) -> Handler:
    """Only of keys that are listed: clients choose the others, and nothing would free them."""
    module, name = HANDLERS[api_key].split(".")
    handler = getattr(import_module(f"{__name__}.{module}"), name)()
    assert isinstance(handler, Handler)
    return handler
