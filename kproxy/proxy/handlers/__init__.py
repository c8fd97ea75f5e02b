"""One handler for each API key whose requests or answers kproxy changes; all others are relayed, lifted and lowered."""

from collections.abc import Mapping
from types import MappingProxyType

from kproxy.codec.messages import ApiKey
from kproxy.proxy.handlers.addresses import DescribeCluster, FindCoordinator, Metadata
from kproxy.proxy.handlers.admin import DescribeConfigs
from kproxy.proxy.handlers.api_versions import ApiVersions
from kproxy.proxy.handlers.base import Handler
from kproxy.proxy.handlers.fetch import Fetch
from kproxy.proxy.handlers.list_offsets import ListOffsets
from kproxy.proxy.handlers.offset_handlers import OffsetCommit, OffsetFetch
from kproxy.proxy.handlers.own_topics import (
    AlterConfigs,
    AlterPartitionReassignments,
    CreatePartitions,
    CreateTopics,
    DeleteRecords,
    DeleteTopics,
    ElectLeaders,
    IncrementalAlterConfigs,
)
from kproxy.proxy.handlers.produce import PassedProduce
from kproxy.proxy.handlers.sasl_handlers import SaslAuthenticate, SaslHandshake
from kproxy.proxy.handlers.topic_pages import DescribeTopicPartitions
from kproxy.proxy.handlers.transaction_admin import (
    DescribeProducers,
    DescribeTransactions,
    ListTransactions,
    WriteTxnMarkers,
)
from kproxy.proxy.handlers.transaction_handlers import (
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    Transactional,
    TxnOffsetCommit,
)

HANDLERS: Mapping[int, Handler] = MappingProxyType(
    {
        ApiKey.PRODUCE: PassedProduce(),
        ApiKey.FETCH: Fetch(),
        ApiKey.LIST_OFFSETS: ListOffsets(),
        ApiKey.METADATA: Metadata(),
        ApiKey.OFFSET_COMMIT: OffsetCommit(),
        ApiKey.OFFSET_FETCH: OffsetFetch(),
        ApiKey.FIND_COORDINATOR: FindCoordinator(),
        ApiKey.SASL_HANDSHAKE: SaslHandshake(),
        ApiKey.API_VERSIONS: ApiVersions(),
        ApiKey.CREATE_TOPICS: CreateTopics(),
        ApiKey.DELETE_TOPICS: DeleteTopics(),
        ApiKey.DELETE_RECORDS: DeleteRecords(),
        ApiKey.ALTER_CONFIGS: AlterConfigs(),
        ApiKey.INIT_PRODUCER_ID: InitProducerId(),
        ApiKey.ADD_PARTITIONS_TO_TXN: AddPartitionsToTxn(),
        ApiKey.ADD_OFFSETS_TO_TXN: Transactional(),
        ApiKey.END_TXN: EndTxn(),
        ApiKey.WRITE_TXN_MARKERS: WriteTxnMarkers(),
        ApiKey.TXN_OFFSET_COMMIT: TxnOffsetCommit(),
        ApiKey.LIST_TRANSACTIONS: ListTransactions(),
        ApiKey.DESCRIBE_TRANSACTIONS: DescribeTransactions(),
        ApiKey.DESCRIBE_PRODUCERS: DescribeProducers(),
        ApiKey.SASL_AUTHENTICATE: SaslAuthenticate(),
        ApiKey.CREATE_PARTITIONS: CreatePartitions(),
        ApiKey.ELECT_LEADERS: ElectLeaders(),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: IncrementalAlterConfigs(),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: AlterPartitionReassignments(),
        ApiKey.DESCRIBE_CONFIGS: DescribeConfigs(),
        ApiKey.DESCRIBE_CLUSTER: DescribeCluster(),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitions(),
    }
)
DEFAULT = Handler()


def handler_of(api_key: int) -> Handler:
    """The handler of an API key."""
    return HANDLERS.get(api_key, DEFAULT)
