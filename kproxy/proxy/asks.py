"""What is asked elsewhere than of the broker behind a client's port: a group's coordinator, or kproxy's own."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kproxy.codec.messages import Message
from kproxy.codec.produce import TopicRef
from kproxy.txn.requests import TxnRequest

if TYPE_CHECKING:
    from kproxy.proxy.captures import Captured


class GroupAsk(NamedTuple):
    """A request for the coordinator of a group, wherever that is."""

    group_id: str
    request: Message


class TransactionAsk(NamedTuple):
    """A request about a transaction that kproxy decides: the client's own message, and who asks."""

    who: TxnRequest
    request: Message


class ProducePart(NamedTuple):
    """One partition of a transactional Produce request: an error, or a batch in writable memory."""

    topic: TopicRef
    partition: int
    batch: memoryview
    records: int
    #: The client's own: it counts on over its transactions.
    base_sequence: int
    error_code: int = 0


class ProduceAsk(NamedTuple):
    """The batches of a transactional Produce request, in its order."""

    who: TxnRequest
    parts: Sequence[ProducePart]


class CapturedAsk(NamedTuple):
    """The batches of a client that knows nothing of the transaction into which they go."""

    capture: "Captured"
    connection: int
    parts: Sequence[ProducePart]


Ask: TypeAlias = GroupAsk | TransactionAsk | ProduceAsk | CapturedAsk
