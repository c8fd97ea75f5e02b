"""The values that a view of a transactional id is made of: its claim, what is open, what was decided."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_prepare import TransactionPrepare
from kproxy.txn.ids import Producer

#: The reason of a decision that the client itself asked for.
ASKED: Final = "client"
#: The reason where somebody else asked for it, by hand, while the client's transaction was open: it was not told yet.
HAND: Final = "by hand"
#: The reason where kproxy had to abort what a client without transactions wrote, and its decider was not informed yet.
DOOMED: Final = "doomed"
#: The reasons of a claim that aborted what was open: with data of its own, or at most with data of its members.
LOST: Final = "claim"
LOST_MEMBERS: Final = "claim, of members"

#: So many batch ids are remembered of each id: a decision that is repeated later than that is none.
BATCH_IDS: Final = 128


class LogPosition(NamedTuple):
    """The offset of a record, and when the broker took it (ms since 1970)."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class IdClaim:
    """The owner of an id, and the epochs that its transactions may take."""

    generation: int
    producer_id: int
    first_epoch: int
    epochs: int
    nonce: bytes
    client: Producer
    #: The identity that the client named when it asked for this one (KIP-360): it may not have received the response.
    resumed: Producer
    timeout_ms: int
    instance_id: str
    client_id: str
    at: LogPosition
    #: Whether the client's identity is the one that this claim named. Not in snapshots: then its claimant claims again.
    names_client: bool = field(default=False, compare=False, repr=False)

    @classmethod
    def of(cls, body: TransactionClaim, at: LogPosition) -> "IdClaim":
        """The claim that a record makes."""
        return cls(
            body.generation,
            body.producer_id,
            body.first_epoch,
            body.epochs,
            body.nonce,
            Producer(body.client_producer_id, body.client_epoch),
            Producer(body.resumed_producer_id, body.resumed_epoch),
            body.transaction_timeout_ms,
            body.instance_id,
            body.client_id,
            at,
        )

    @property
    def end_epoch(self) -> int:
        """The epoch after the last one."""
        return self.first_epoch + self.epochs

    def covers(self, producer: Producer) -> bool:
        """Whether an epoch is one of those that were claimed."""
        return producer.producer_id == self.producer_id and self.first_epoch <= producer.epoch < self.end_epoch


class Ongoing(NamedTuple):
    """A transaction that has begun and is not decided."""

    producer: Producer
    since: LogPosition


class DecidedEpoch(NamedTuple):
    """The decision that came last, or the claim that aborted the transaction that was open."""

    producer: Producer
    client: Producer
    next_client: Producer
    committed: bool
    reason: str
    #: Nobody asked for it: a claim aborted what was open, and the client may not know.
    by_claim: bool
    at: LogPosition


class BrokerTransaction(NamedTuple):
    """The transaction of the broker's in which a member writes: of an id that nobody else uses meanwhile."""

    transactional_id: str
    producer: Producer
    #: Of ``transaction.version``: which protocol (KIP-98's or KIP-890's) it was begun in.
    level: int
    #: The broker aborts it when it is open for longer.
    timeout_ms: int


class Joined(NamedTuple):
    """A member of a transaction: its owner, its name, and the nonce in its records."""

    owner: Producer
    name: str
    nonce: bytes
    at: LogPosition
    #: None: its data stand under its own producer id, and the log alone says what becomes of them.
    broker_transaction: BrokerTransaction | None = None

    @property
    def expires_ms(self) -> int | None:
        """The earliest time at which the broker may abort it (ms since 1970); None: nobody does."""
        return (
            self.at.timestamp_ms + self.broker_transaction.timeout_ms if self.broker_transaction is not None else None
        )


class EndingMember(NamedTuple):
    """A decided member: the broker may not know the decision yet, and then keeps the member's transaction open."""

    broker_transaction: BrokerTransaction
    name: str
    committed: bool
    #: Nothing was written in it, so the broker has nothing to end.
    empty: bool


class Prepared(NamedTuple):
    """A part that waits for the owner's decision, for as long as it takes."""

    record: TransactionPrepare
    name: str
    at: LogPosition
    #: The identity of the client that had the id then. Not in snapshots of older kproxies.
    client: Producer
