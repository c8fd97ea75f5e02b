"""The client of a transactional id that the brokers decide, while nothing is open and nobody asks, in a few bytes."""

import marshal
from typing import Any, Final, NamedTuple, TypeAlias

from kproxy.txn.ids import Producer
from kproxy.txn.repeated_ends import Ended
from kproxy.txn.stored_epochs import LastEnd

Plain: TypeAlias = Any
"""Numbers, strings and None, in tuples, lists and dictionaries."""

#: The format of ``marshal``: without references, which would take longer to find than they save.
_FORMAT: Final = 2


class RestingClient(NamedTuple):
    """What ``BrokerOwner`` knows."""

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
    last_end: LastEnd
    last: Ended | None
    is_continued: bool
    is_outdated: bool
    is_used: bool
    owes_epoch: bool

    def to_bytes(self) -> bytes:
        """For ``of_bytes``, in the same process."""
        last = self.last and (tuple(self.last.client), self.last.committed, tuple(self.last.next_client))
        named = self._replace(last=None, last_end=None)._asdict()  # type: ignore[arg-type]
        plain = [tuple(value) if isinstance(value, Producer) else value for value in named.values()]
        return marshal.dumps((plain, int(self.last_end), last), _FORMAT)

    @classmethod
    def of_bytes(cls, data: bytes) -> "RestingClient":
        """What ``to_bytes`` was given."""
        plain, last_end, last = marshal.loads(data)
        state = cls(*plain)
        return state._replace(
            upstream=Producer(*state.upstream),
            resumed=Producer(*state.resumed),
            given=Producer(*state.given),
            last_end=LastEnd(last_end),
            last=None if last is None else Ended(Producer(*last[0]), last[1], Producer(*last[2])),
        )
