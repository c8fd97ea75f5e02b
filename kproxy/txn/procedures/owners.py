"""The owners of transactional ids at this instance: one collection for each place where transactions are decided."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.ids import Producer
from kproxy.txn.requests import TxnRequest

if TYPE_CHECKING:
    from kproxy.txn.procedures.owner import Owner
    from kproxy.txn.procedures.owner_policy import OwnerPolicy


class Owners(Protocol):
    """The owners of ids that kproxy's log decides (``LogOwners``), or of those that the broker does (``BrokerOwners``).

    Methods that wait raise TxnError with the error for the client.
    """

    #: Set when kproxy stops: no transaction begins here after that.
    leaving: bool

    @property
    def offsets_wait(self) -> bool:
        """Whether a group's offsets wait for a transaction that may be open until the next one of its id begins."""

    def __iter__(self) -> "Iterator[Owner]":
        """The owners of ids of which something may be open."""

    def exists(self, transactional_id: str) -> bool:
        """Whether somebody has an id, as far as this instance knows."""

    def known(self, transactional_id: str) -> "Owner | None":
        """The owner of an id, if there is one here."""

    def owner_now(self, request: TxnRequest) -> "Owner | None":
        """The owner for a request, if nothing has to be waited for to know that."""

    async def owner(self, request: TxnRequest) -> "Owner":
        """The owner for a request; also where the client had its identity before kproxy was restarted."""
        ...

    async def initialize(
        self, transactional_id: str, timeout_ms: int, resumed: Producer, client_id: str, policy: "OwnerPolicy"
    ) -> Producer:
        """InitProducerId: the identity of a client that takes an id, or continues with it.

        ``resumed``: the identity that the client has (KIP-360), or NOBODY. ``policy``: its kind.
        """
        ...

    async def refusals(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, ErrorCode]:
        """The errors of partitions that no transaction may have data in."""
        ...

    def answer_expired(self, request: TxnRequest, *, committed: bool) -> Producer | None:
        """The response to a repeated EndTxn of an id that has expired since, if that is known."""
