"""The view of a transactional id for which nobody has anything to do, in a few bytes, from which it is rebuilt.

Anyone who may use a transactional id leaves a view in every instance, for as long as readers may ask what became of its
data: for longer than the id itself exists. So a view of which only the claim, the last decision and the verdicts are
left is packed while nobody asks for it.
"""

from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from kproxy.codec import packed
from kproxy.codec.packed import plain
from kproxy.txn.epoch_set import EpochSet
from kproxy.txn.ids import Producer
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.view_values import DecidedEpoch, IdClaim

#: Fields of a view that are empty at rest.
EMPTY: Final = (
    "ongoing",
    "copies",
    "members",
    "prepared",
    "ending",
    "bounds",
    "first_sequences",
    "pending",
    "unmirrored",
)
_empty_of = attrgetter(*EMPTY)
_CLAIM: Final = tuple(one.name for one in fields(IdClaim))
_claim_of = attrgetter(*_CLAIM)
#: Fields of a claim by what they are.
_PRODUCERS: Final = frozenset({"client", "resumed"})


def pack(view: IdView) -> bytes | None:
    """The bytes of a view at rest; None if it is not at rest."""
    if any(_empty_of(view)):
        return None
    claim, last = view.claim, view.last
    state = (
        None if claim is None else plain(_claim_of(claim)),
        tuple(view.client),
        view.generations,
        [(producer_id, epochs.to_bytes()) for producer_id, epochs in view.committed.items()],
        [tuple(part) for part in view.aborted],
        [(producer_id, epochs.to_bytes()) for producer_id, epochs in view.aborted_members.items()],
        None if last is None else plain(last),
        list(view.batch_ids),
        list(view.aborted_batch_ids),
        view.expired,
        tuple(view.touched),
    )
    return packed.pack(state)


def unpack(transactional_id: str, data: bytes) -> IdView:
    """The view that ``pack`` gave the bytes of."""
    claim, client, generations, committed, aborted, aborted_members, last, *rest = packed.unpack(data)
    batch_ids, aborted_batch_ids, expired, touched = rest
    view = IdView(transactional_id, None if claim is None else _claim(claim), Producer(*client), generations)
    view.committed = {producer_id: EpochSet(bits) for producer_id, bits in committed}
    view.aborted = {Producer(*part) for part in aborted}
    view.aborted_members = {producer_id: EpochSet(bits) for producer_id, bits in aborted_members}
    if last is not None:
        producer, former, following, is_committed, reason, by_claim, at = last
        named = Producer(*producer), Producer(*former), Producer(*following)
        view.last = DecidedEpoch(*named, is_committed, reason, by_claim, LogPosition(*at))
    view.batch_ids.extend(batch_ids)
    view.aborted_batch_ids.extend(aborted_batch_ids)
    view.expired, view.touched = expired, LogPosition(*touched)
    return view


def _claim(values: tuple[Any, ...]) -> IdClaim:
    named = dict(zip(_CLAIM, values, strict=True))
    for name in _PRODUCERS:
        named[name] = Producer(*named[name])
    return IdClaim(**{**named, "at": LogPosition(*named["at"])})
