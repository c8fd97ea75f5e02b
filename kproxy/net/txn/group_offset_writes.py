"""Offsets of consumer groups in transactions: whether the group has moved on, and their way to the broker."""

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.txn.group_checks import check_member
from kproxy.net.txn.offset_mirror import OffsetMirror
from kproxy.txn.ids import Producer


class GroupOffsets:
    """Offsets of groups in transactions (``kproxy.txn.procedures.outside.Groups``)."""

    def __init__(self, cluster: Cluster, mirror: OffsetMirror) -> None:
        """``cluster`` knows who coordinates a group."""
        self._cluster = cluster
        self._mirror = mirror

    async def check(self, offsets: TransactionOffsets) -> int:
        """Kafka's error code if the group is not at the offsets' generation; 0 if it is, or none was named."""
        return await check_member(self._cluster, offsets)

    def check_room(self) -> None:
        self._mirror.check_room()

    def committed(self, transactional_id: str, producer: Producer) -> None:
        """The offsets of this transaction hold now."""
        self._mirror.committed(transactional_id)
