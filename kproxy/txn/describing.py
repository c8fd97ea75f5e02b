"""Describes a transactional id for the control API, by the transaction log."""

from typing import TYPE_CHECKING

from kproxy.txn.described import Described, DescribedPart, Listed, Outcome
from kproxy.txn.ids import Producer
from kproxy.txn.states import TransactionState
from kproxy.txn.verdict import Verdict

if TYPE_CHECKING:
    from kproxy.txn.view import IdView


def state_of(view: "IdView") -> TransactionState:
    """The state as any reader of the log knows it: a decision is pending where the broker has not been told of it."""
    if view.expired:
        return TransactionState.DEAD
    if view.ongoing is not None:
        return TransactionState.ONGOING
    if view.last is None:
        return TransactionState.EMPTY
    if view.ending and not view.last.by_claim:
        return TransactionState.PREPARE_COMMIT if view.last.committed else TransactionState.PREPARE_ABORT
    return TransactionState.COMPLETE_COMMIT if view.last.committed else TransactionState.COMPLETE_ABORT


def describe(view: "IdView") -> Described:
    """All that the log says of an id."""
    claim, ongoing, last = view.claim, view.ongoing, view.last
    places = {place for places in view.bounds.values() for place in places}
    return Described(
        transactional_id=view.transactional_id,
        state=state_of(view).value,
        client_id=claim.client_id if claim is not None else "",
        producer_id=view.client.producer_id,
        producer_epoch=view.client.epoch,
        started_ms=ongoing.since.timestamp_ms if ongoing is not None else None,
        timeout_ms=claim.timeout_ms if claim is not None else 0,
        partitions=tuple(sorted(places)),
        groups=tuple(sorted({record.group_id for _, record in view.undecided_groups()})),
        parts=tuple(_parts(view)),
        instance_id=claim.instance_id if claim is not None else "",
        last=Outcome(last.committed, last.reason, last.at.timestamp_ms) if last is not None else None,
        batch_ids=tuple(view.batch_ids),
    )


def listed(found: Described) -> Listed:
    """The row of an id in a list."""
    return Listed(*(getattr(found, name) for name in Listed._fields))


def _parts(view: "IdView") -> list[DescribedPart]:
    """Prepared parts, and members that are open; producer ids as in batches."""
    parts = [
        DescribedPart(one.name, *producer, True, _expires(view, producer), one.record.batch_id)
        for producer, one in view.prepared.items()
    ]
    for producer, joined in view.members.items():
        if joined.name and producer not in view.prepared and view.verdict(producer) is Verdict.UNDECIDED:
            parts.append(DescribedPart(joined.name, *producer, prepared=False, expires_ms=_expires(view, producer)))
    return sorted(parts, key=lambda part: part[:4])


def _expires(view: "IdView", part: Producer) -> int | None:
    joined = view.members.get(part)
    return joined.expires_ms if joined is not None else None
