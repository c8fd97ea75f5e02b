"""What every owner of a transactional id uses, and does not own."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.txn.former_epochs import FormerEpochs
from kproxy.net.txn.transaction_log import TransactionLog
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.proxy.traces import NoTraces, Traces
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.ids import Producer
from kproxy.txn.txn_error import TxnError


class Groups(Protocol):
    """The offsets of consumer groups in transactions."""

    async def check(self, offsets: TransactionOffsets) -> int:
        """Kafka's error code if the group has moved on since the offsets' generation; 0 if it has not."""
        ...

    def check_room(self) -> None:
        """TxnError (COORDINATOR_LOAD_IN_PROGRESS) if too many are in open transactions, or not taken by brokers."""
        ...

    def committed(self, transactional_id: str, producer: Producer) -> None:
        """The offsets of this transaction hold now; the broker's own group offsets are to follow."""
        ...


class Topics(Protocol):
    """Which topics may hold data of transactions that kproxy's own log decides."""

    async def errors(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, ErrorCode]:
        """Of these partitions those that may not, with the error for the client. TxnError if that is unknown."""
        ...

    def is_known_writable(self, place: TopicPartition) -> bool:
        """Whether a partition may, as far as that is known without asking a broker."""
        ...


class Ends(Protocol):
    """The ends of partitions."""

    async def __call__(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The high watermark of each. OSError, RemoteProtocolError; TxnError if a partition can't be written."""
        ...


@dataclass(frozen=True, slots=True)
class OwnerTools:
    """Shared by the owners of one instance."""

    log: TransactionLog
    cluster: Cluster
    stats: TransactionStats
    groups: Groups
    ends: Ends
    topics: Topics
    former: FormerEpochs
    #: Connections for the data of one transactional id.
    connections: Callable[[], WriterConnections]
    #: 16 random bytes.
    nonce: Callable[[], bytes]
    instance_id: str
    traces: Traces = NoTraces()  # noqa: RUF009  # it has no state

    async def new_producer_id(self) -> int:
        """As brokers give it. TxnError if none is available."""
        try:
            return await self.cluster.new_producer_id()
        except (OSError, RemoteProtocolError) as error:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no producer id: {error}") from error
