"""Detection of a transactional client's late requests: sent for a transaction that has ended since (KAFKA-17754).

Clients of the first protocol (before KIP-890) write all their transactions under one epoch, so the epoch can't tell.
A client that gives up waiting for a response closes the connection; what it sends afterwards arrives over a newer one.
"""

from typing import TYPE_CHECKING, Final

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.codec.packed import Plain
from kproxy.txn.txn_error import TxnError

if TYPE_CHECKING:
    from kproxy.codec.topic_partition import TopicPartition

#: The name for the transaction's coordinator where groups' coordinators are named by their group; no group has it.
COORDINATOR: Final = ""
#: Groups of one client whose connections are remembered; the one that was used least recently is forgotten.
_MOST_GROUPS: Final = 1_000
#: The groups of one transaction may take so many bytes of memory; about as many for each entry.
_MOST_BYTES: Final = 1 << 20
_ENTRY_BYTES: Final = 256


class NewestConnections:
    """The newest connection by which a client asked each coordinator: the transaction's, and those of its groups.

    Connections are compared by serial number, in the order in which kproxy accepted them.
    """

    def __init__(self) -> None:
        """No request has arrived."""
        self._newest: dict[str, int] = {}
        self._least = 0

    def refuse_older(self, than: int) -> None:
        """The client has come back from another instance: what it sent here before that is late (``check``)."""
        self._least = than

    def check(self, connection: int) -> None:
        """TxnError (NETWORK_EXCEPTION) for a request over a connection from before the client came back.

        kproxy's own requests (connection 0) are never late.
        """
        if 0 < connection < self._least:
            raise TxnError(ErrorCode.NETWORK_EXCEPTION, "the client has come back over a newer connection")

    def admit(self, coordinator: str, connection: int) -> None:
        """Records the connection of a request to a coordinator (``COORDINATOR``, or the group that it coordinates).

        TxnError (NETWORK_EXCEPTION) if a newer one was used: the request is late. It is answered by closing the
        connection, since a client that is still there sends the request again over a new one.
        """
        self.check(connection)
        newest = self._newest.pop(coordinator, -1)
        self._newest[coordinator] = max(newest, connection)
        if connection < newest:
            raise TxnError(ErrorCode.NETWORK_EXCEPTION, "a newer connection of the producer is in use")
        groups = len(self._newest) - (COORDINATOR in self._newest)
        if groups > _MOST_GROUPS:
            del self._newest[next(name for name in self._newest if name != COORDINATOR)]

    def is_newest(self, coordinator: str, connection: int) -> bool:
        """Whether the coordinator was last asked over this connection."""
        return self._newest.get(coordinator) == connection

    def clear(self) -> None:
        """Forgets all: the client has a new identity, which tells its requests from older ones."""
        self._newest.clear()
        self._least = 0

    def pack(self) -> Plain:
        """State for ``unpack``."""
        return self._newest, self._least

    def unpack(self, packed: Plain) -> None:
        """Takes the state that ``pack`` returned."""
        self._newest, self._least = packed


class AddedGroups:
    """The groups of one transaction of the first protocol: what AddOffsetsToTxn added, and which connections sent their
    offsets.

    A TxnOffsetCommit of an earlier transaction can still arrive after the next transaction has added the same group, as
    long as the client has not yet sent that transaction's own. It belongs to the wrong transaction, but nothing shows
    that at the time. The client's own request shows it later: it comes over a newer connection. What it replaces does
    no harm. If something is left the transaction can only be aborted.
    """

    def __init__(self) -> None:
        """No group was added."""
        self._added: set[str] = set()
        self._senders: dict[tuple[str, TopicPartition], int] = {}
        self._bytes = 0

    def add(self, group_id: str) -> None:
        """AddOffsetsToTxn. TxnError (TRANSACTION_ABORTABLE) for more groups than can be remembered."""
        if group_id not in self._added:
            self._hold(_ENTRY_BYTES + len(group_id))
            self._added.add(group_id)

    def _hold(self, count: int) -> None:
        if self._bytes + count > _MOST_BYTES:
            why = f"the names of its groups and partitions take more than {_MOST_BYTES} bytes"
            raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, why)
        self._bytes += count

    def __contains__(self, group_id: object) -> bool:
        """Whether AddOffsetsToTxn has added the group to this transaction."""
        return group_id in self._added

    def receive(self, offsets: TransactionOffsets, connection: int) -> TxnError | None:
        """Records the connection of offsets that count. The error if the transaction can only be aborted now.

        That is so if an older connection brought offsets of the group that these don't replace. TxnError
        (TRANSACTION_ABORTABLE) for more partitions than can be remembered.
        """
        group = offsets.group_id
        places = {(topic.name, row.index) for topic in offsets.topics for row in topic.partitions}
        left = [place for (name, place), by in self._senders.items() if name == group and by < connection]
        if not places.issuperset(left):
            why = f"offsets of group {group} came over two connections: those that came first may be late"
            return TxnError(ErrorCode.TRANSACTION_ABORTABLE, why)
        known = {place for place in places if (group, place) in self._senders}
        self._hold(sum(_ENTRY_BYTES + len(name) for name, _ in places - known))
        self._senders.update({(group, place): connection for place in places})
        return None
