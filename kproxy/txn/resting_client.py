"""The client of a transactional id that the brokers decide, while nothing is open and nobody asks, in a few bytes."""

from typing import NamedTuple

from kproxy.codec import packed
from kproxy.codec.packed import Plain
from kproxy.txn.ids import Producer
from kproxy.txn.repeated_ends import Ended


class RestingClient(NamedTuple):
    """State of a ``BrokerOwner``."""

    #: As their ``pack`` methods return them.
    known: Plain
    kept: Plain
    sequences: Plain
    #: None if the client's sequences are known from its first batch on.
    first_batches: Plain
    #: Of ``transaction.version``.
    level: int
    timeout_ms: int
    upstream: Producer
    resumed: Producer
    given: Producer
    #: ``LastEnd``.
    last_end: int
    last: Ended | None
    is_continued: bool
    is_outdated: bool
    is_used: bool
    owes_epoch: bool

    def to_bytes(self) -> bytes:
        """Bytes for ``of_bytes``."""
        return packed.pack(packed.plain(self))

    @classmethod
    def of_bytes(cls, data: bytes) -> "RestingClient":
        """The state that ``to_bytes`` has packed."""
        state = cls(*packed.unpack(data))
        last = state.last
        return state._replace(
            upstream=Producer(*state.upstream),
            resumed=Producer(*state.resumed),
            given=Producer(*state.given),
            last=None if last is None else Ended(Producer(*last[0]), last[1], Producer(*last[2])),
        )
