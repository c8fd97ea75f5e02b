"""The parts of a transactional id that wait for a decision of its owner, because they were prepared."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kproxy.codec.messages import ErrorCode
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view_values import ASKED

if TYPE_CHECKING:
    from kproxy.codec._generated.transaction_prepare import TransactionPrepare
    from kproxy.txn.view import IdView


class DecisionScope(NamedTuple):
    """The extent of a decision beside the open transaction, and what makes it known again."""

    #: A commit under a batch id that was committed before changes nothing.
    batch_id: str | None = None
    #: Names of members, beside the owner's own part that was prepared with them. None: the open transaction alone.
    members: Sequence[str] | None = None
    #: Whether the batch may be a former owner's: the present one has nothing open here.
    former: bool = False
    #: These parts, and no other.
    parts: Collection[Producer] = ()
    #: All that is prepared, whatever its name.
    every: bool = False
    #: Of an abort, for the log: who asked for it, or which internal event caused it.
    reason: str = ASKED


class DecidedParts(NamedTuple):
    """The same, as the decision's record says it."""

    batch_id: str | None = None
    parts: Sequence["TransactionPrepare"] = ()


#: How many members a decision may name: its record, which tells what each wrote, must be one that brokers take.
MOST_MEMBERS: Final = 1_000
ALONE: Final = DecisionScope()
EVERYTHING: Final = DecisionScope(every=True)
NOTHING_BESIDE: Final = DecidedParts()


def named_parts(view: "IdView", but: Collection[Producer] = ()) -> set[str]:
    """The names of the members that are open or prepared, without those under some producer ids."""
    open_ones = {one.name for part, one in view.members.items() if part not in but}
    return (open_ones | {one.name for one in view.prepared.values()}) - {""}


def prepared_parts(view: "IdView | None", also: DecisionScope) -> tuple["TransactionPrepare", ...]:
    """The records of the parts that are meant. TxnError if a member that is meant has prepared nothing."""
    prepared = view.prepared if view is not None else {}
    unknown = set(also.members or ()) - {one.name for one in prepared.values()}
    if unknown and not also.every:
        raise TxnError(ErrorCode.INVALID_REQUEST, f"members that have prepared nothing: {', '.join(sorted(unknown))}")
    covered = covered_parts(view, also) if view is not None else ()
    return tuple(one.record for part, one in prepared.items() if part in covered)


def refuse_ambiguous(view: "IdView", also: DecisionScope) -> None:
    """TxnError where a commit would cover what several owners have written themselves: a batch has one such part."""
    covered = (view.prepared[part] for part in covered_parts(view, also))
    owners = {one.client for one in covered if one.name == ""} - {NOBODY}
    if len(owners if also.former else {*owners, view.client}) > 1:
        why = "several owners of the id have written a part of their own: abort what is not wanted"
        raise TxnError(ErrorCode.INVALID_REQUEST, why)


def refuse_other_batch(view: "IdView", also: DecisionScope) -> None:
    """TxnError where the own part of the batch that is meant was aborted, or the owner has prepared another batch."""
    if covered_parts(view, also):
        return
    if view.has_aborted(also.batch_id):
        why = f"what was prepared under the batch id {also.batch_id} is aborted: write the batch again"
        raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, why)
    named = (one.record.batch_id for one in view.prepared.values() if one.name == "" and one.client == view.client)
    other = next((batch_id for batch_id in named if batch_id is not None), None)
    if other is not None and also.batch_id is not None:
        why = f"the owner has prepared the batch id {other}: commit or abort that one"
        raise TxnError(ErrorCode.INVALID_REQUEST, why)


def covered_parts(view: "IdView", also: DecisionScope) -> set[Producer]:
    """The prepared parts of the batch that is meant; a member that has prepared nothing is left out.

    An own part that was prepared under a batch id is of that batch. Of any other the log says who owned the id when
    it was prepared, and not of which batch it is (``verification.explorer.drivers``).
    """
    if also.every:
        return set(view.prepared)
    if also.members is None:
        return {part for part in also.parts if part in view.prepared}
    named = {part for part, one in view.prepared.items() if one.name in also.members}
    return named | _own_parts(view, {view.prepared[part].client for part in named}, also)


def _own_parts(view: "IdView", owners: set[Producer], also: DecisionScope) -> set[Producer]:
    """The owners' own parts: of the present one, and of ``owners``, those of the members that are named.

    A part under the batch id that is meant is the batch's, and one under another id is not. A batch without members
    that the present owner has not prepared itself is a former owner's, of which no member waits. What a snapshot of an
    older kproxy names no owner of is always covered, as it was there.
    """
    own = {part: one.client for part, one in view.prepared.items() if one.name == ""}
    if also.batch_id is not None:
        batch_ids = {part: view.prepared[part].record.batch_id for part in own}
        if exact := {part for part, batch_id in batch_ids.items() if batch_id == also.batch_id}:
            return exact
        own = {part: client for part, client in own.items() if batch_ids[part] is None}
    covered = {part for part, client in own.items() if client in (*owners, view.client, NOBODY)}
    if also.members or covered or not also.former:
        return covered
    waiting = {one.client for one in view.prepared.values() if one.name}
    return {part for part, client in own.items() if client not in waiting}


def is_any_prepared(view: "IdView | None", beside: DecidedParts) -> bool:
    """Whether a part of a decision is still prepared: a claim came before it, and aborted only what was open."""
    prepared = view.prepared if view is not None else {}
    return any(Producer(row.producer_id, row.epoch) in prepared for row in beside.parts)
