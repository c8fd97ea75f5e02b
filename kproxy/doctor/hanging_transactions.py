"""Transactions that brokers keep open though no coordinator has them: read_committed consumers wait there for ever."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kproxy.codec._generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeProducersResponse,
)
from kproxy.codec._generated.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.errors import KproxyError, RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster

_LIVE: Final = ["Ongoing", "PrepareCommit", "PrepareAbort"]
_METADATA: Final = (1, 12)


class Hanging(NamedTuple):
    """An open transaction of a partition that no coordinator will end."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    #: ms since 1970.
    last_write_ms: int

    def abort_command(self, bootstrap: str) -> str:
        """Return the command of Kafka's that ends it."""
        place = f"--topic {self.topic} --partition {self.partition} --start-offset {self.start_offset}"
        return f"kafka-transactions.sh --bootstrap-server {bootstrap} abort {place}"


async def find_hanging(cluster: Cluster, *, older_than_ms: int) -> tuple[list[Hanging], list[str]]:
    """Return what hangs, and the partitions that could not be asked.

    Younger transactions are passed over: their coordinator may be about to end them.

    :raises KproxyError: no broker answers, or one knows no such requests (they are as old as Kafka 3.0).
    """
    try:
        await cluster.refresh()
        metadata = await cluster.ask_any(
            MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse, _METADATA
        )
        opened, unasked = await _open_transactions(cluster, metadata)
        live = await _live_producers(cluster)
    except (OSError, RemoteProtocolError) as error:
        raise KproxyError(f"cannot ask the brokers for their transactions: {error}") from None
    latest = cluster.network.wall() * 1000 - older_than_ms
    hanging = [row for row in opened if row.last_write_ms <= latest and row.producer_id not in live]
    return sorted(hanging), sorted(unasked)


async def _open_transactions(cluster: Cluster, metadata: MetadataResponse) -> tuple[list[Hanging], list[str]]:
    found: list[Hanging] = []
    unasked: list[str] = []
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic in metadata.topics:
        for row in topic.partitions:
            if topic.name is not None and row.leader_id in cluster.map.brokers:
                by_leader.setdefault(row.leader_id, {}).setdefault(topic.name, []).append(row.partition_index)
            else:
                unasked.append(f"{topic.name}-{row.partition_index}")
    for leader, topics in by_leader.items():
        asked = [DescribeProducersRequestTopicRequest(name, indexes) for name, indexes in topics.items()]
        response = await cluster.call(
            cluster.map.brokers[leader].address, DescribeProducersRequest(asked), DescribeProducersResponse
        )
        found += _with_a_transaction(response)
        unasked += [
            f"{topic.name}-{row.partition_index}"
            for topic in response.topics
            for row in topic.partitions
            if row.error_code
        ]
    return found, unasked


def _with_a_transaction(response: DescribeProducersResponse) -> Iterator[Hanging]:
    for topic in response.topics:
        for row in topic.partitions:
            for state in row.active_producers:
                if state.current_txn_start_offset >= 0:
                    yield Hanging(
                        topic.name,
                        row.partition_index,
                        state.producer_id,
                        state.producer_epoch,
                        state.current_txn_start_offset,
                        state.last_timestamp,
                    )


async def _live_producers(cluster: Cluster) -> set[int]:
    """The producer ids that a coordinator has an unfinished transaction of."""
    live: set[int] = set()
    for broker in cluster.map.brokers.values():
        if broker.node_id in cluster.map.members:
            request = ListTransactionsRequest(state_filters=_LIVE)
            response = await cluster.call(broker.address, request, ListTransactionsResponse, (0, 1))
            if response.error_code:
                raise RemoteProtocolError(f"broker {broker.node_id}: ListTransactions: error {response.error_code}")
            live |= {row.producer_id for row in response.transaction_states}
    return live
