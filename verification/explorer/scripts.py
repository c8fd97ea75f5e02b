"""Scripts of clients, and a client's knowledge of its transactions."""

from dataclasses import dataclass, field
from typing import NamedTuple


class Txn(NamedTuple):
    """The writes of a transaction: how many records to each partition; and whether it moves a group's offsets."""

    records: tuple[int, ...] = (1,)
    commits: bool = True
    offsets: bool = False
    #: Whether the client asks for its next identity before, with the one that it has (KIP-360).
    renews: bool = False
    #: Whether such a request takes the place of its end: it aborts what is open.
    ends_renewed: bool = False


class Script(NamedTuple):
    """The acts of a client."""

    txns: tuple[Txn, ...]
    #: The second protocol: partitions join by being written, and each end gives a new identity (KIP-890).
    second: bool = False
    #: Its records are in flight at the same time, perhaps through several instances.
    pipelined: bool = False
    #: The number of the instance that it asks first.
    at: int = 0
    transactional_id: str = "id"


@dataclass
class Told:
    """The outcome of a transaction as a client knows it."""

    sent: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    #: Which ends it has asked for: whether to commit.
    asked: list[bool] = field(default_factory=list)
    #: What it has heard: None: nothing yet.
    committed: bool | None = None
    #: Whether the response to its first EndTxn, a commit, was that another producer has the id: it is aborted, then.
    is_denied: bool = False
    #: Whether the group's offsets were acknowledged.
    offsets: bool = False
