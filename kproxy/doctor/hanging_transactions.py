"""Transactions that brokers keep open and no coordinator will end: read_committed consumers wait there for ever."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple

import trio

from kproxy.codec._generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeProducersResponse,
)
from kproxy.codec._generated.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kproxy.codec._generated.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.errors import KproxyError, RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.proxy.routing import Broker

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
    latest = cluster.network.wall() * 1000 - older_than_ms
    try:
        await cluster.refresh()
        metadata = await cluster.ask_any(
            MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse, _METADATA
        )
        opened, unasked = await _open_transactions(cluster, metadata)
        candidates = [row for row in opened if row.last_write_ms <= latest]
        ending = await _coordinated(cluster, sorted({row.producer_id for row in candidates})) if candidates else {}
    except (OSError, RemoteProtocolError) as error:
        raise KproxyError(f"cannot ask the brokers for their transactions: {error}") from None
    hanging = [
        row for row in candidates if ending.get((row.producer_id, (row.topic, row.partition)), -1) < row.producer_epoch
    ]
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

    async def ask(broker: Broker) -> None:
        topics = by_leader[broker.node_id].items()
        request = DescribeProducersRequest([DescribeProducersRequestTopicRequest(*topic) for topic in topics])
        try:
            response = await cluster.call(broker.address, request, DescribeProducersResponse)
        except OSError:
            unasked.extend(f"{topic}-{index}" for topic, indexes in topics for index in indexes)
            return
        found.extend(_with_a_transaction(response))
        unasked.extend(
            f"{topic.name}-{row.partition_index}"
            for topic in response.topics
            for row in topic.partitions
            if row.error_code
        )

    await _of_each([cluster.map.brokers[leader] for leader in by_leader], ask)
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


async def _coordinated(cluster: Cluster, producer_ids: list[int]) -> dict[tuple[int, TopicPartition], int]:
    """The partitions in which a coordinator will still end the transaction of a producer id, and its epoch there.

    A marker with that epoch or a later one ends what is open, and a partition refuses a marker with an earlier one.
    """
    epochs: dict[tuple[int, TopicPartition], int] = {}

    async def ask(broker: Broker) -> None:
        listing = ListTransactionsRequest(producer_id_filters=producer_ids)
        listed = await cluster.call(broker.address, listing, ListTransactionsResponse, (0, 1))
        if listed.error_code:
            raise RemoteProtocolError(f"broker {broker.node_id}: ListTransactions: error {listed.error_code}")
        if not listed.transaction_states:
            return
        request = DescribeTransactionsRequest([row.transactional_id for row in listed.transaction_states])
        described = await cluster.call(broker.address, request, DescribeTransactionsResponse)
        for row in described.transaction_states:
            if row.error_code not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
                raise RemoteProtocolError(f"broker {broker.node_id}: DescribeTransactions: error {row.error_code}")
            for topic in row.topics:
                for index in topic.partitions:
                    epochs[row.producer_id, (topic.topic, index)] = row.producer_epoch

    await _of_each([broker for broker in cluster.map.brokers.values() if broker.node_id in cluster.map.members], ask)
    return epochs


async def _of_each(brokers: list[Broker], ask: Callable[[Broker], Awaitable[None]]) -> None:
    """Asks all brokers at once. OSError, RemoteProtocolError of the first that fails."""
    try:
        async with trio.open_nursery() as nursery:
            for broker in brokers:
                nursery.start_soon(ask, broker)
    except* (OSError, RemoteProtocolError) as failed:
        raise failed.exceptions[0] from None
