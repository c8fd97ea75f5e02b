"""The producer ids of kept producers: to whom each was given, and under which ids kproxy continues its batches.

Both follow from the id itself, so that another instance, and the next process, need not be told.
"""

from hashlib import blake2b
from struct import Struct
from typing import Final

from kproxy.dedup.producer_ids import FIRST_RESERVED, KPROXY_BIT

#: Bits of the id that the broker assigned. Brokers count theirs from 0, in blocks of 1,000 for each start of one.
_ASSIGNED_BITS: Final = 36
#: The bits above, up to ``FIRST_RESERVED``, say to whom it was given.
_TAGS: Final = (FIRST_RESERVED >> _ASSIGNED_BITS) - 1
_ASSIGNED: Final = (1 << _ASSIGNED_BITS) - 1
_NUMBER: Final = Struct(">q")
_SUCCESSOR: Final = Struct(">qi")
#: Producer ids that kproxy takes from the broker for itself have 0 here.
_CONTINUES: Final = KPROXY_BIT | FIRST_RESERVED


class GivenIds:
    """Marks a producer id with its owner, by a secret that no client knows."""

    def __init__(self, secret: bytes) -> None:
        """``secret``: the same for all instances of a cluster; at most 64 bytes."""
        self._secret = secret

    def given(self, producer_id: int, owner: bytes) -> int | None:
        """The id to give to a producer, of the one that the broker assigned; None if there is no room for a mark."""
        if not 0 <= producer_id <= _ASSIGNED:
            return None
        digest = blake2b(owner, digest_size=8, key=self._secret, salt=_NUMBER.pack(producer_id)).digest()
        tag = 1 + int.from_bytes(digest, "big") % _TAGS
        return tag << _ASSIGNED_BITS | producer_id

    def belongs(self, producer_id: int, owner: bytes) -> bool:
        """Whether an id was given to this owner."""
        return self.given(producer_id & _ASSIGNED, owner) == producer_id


def is_given(producer_id: int) -> bool:
    """Whether an id is one that kproxy gives to clients."""
    return _ASSIGNED < producer_id < FIRST_RESERVED


def successor(producer_id: int, nth: int) -> int:
    """The id under which a producer's batches are written to a partition; ``nth``: how many were used there before.

    The broker never assigned it, and takes the first batch under it at any sequence.
    """
    if not nth:
        return producer_id
    digest = blake2b(_SUCCESSOR.pack(producer_id, nth), digest_size=8).digest()
    return _CONTINUES | int.from_bytes(digest, "big") % FIRST_RESERVED
