"""The parts of a transactional id that wait for a decision of its owner, because they were prepared."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kproxy.codec.messages import ErrorCode
from kproxy.txn.ids import Producer
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view_values import ASKED

if TYPE_CHECKING:
    from kproxy.codec._generated.transaction_prepare import TransactionPrepare
    from kproxy.txn.view import IdView


class DecisionScope(NamedTuple):
    """What a decision covers beside the open transaction, and what makes it known again."""

    #: A commit under a batch id that was committed before changes nothing.
    batch_id: str | None = None
    #: Names of members, beside the owner's own parts that were prepared. None: the open transaction alone.
    members: Sequence[str] | None = None
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
    """What was prepared, as far as it is meant. TxnError if a member that is meant has prepared nothing."""
    prepared = list(view.prepared.values()) if view is not None else []
    if also.every:
        return tuple(part.record for part in prepared)
    if also.members is None:
        return ()
    unknown = set(also.members) - {part.name for part in prepared}
    if unknown:
        raise TxnError(ErrorCode.INVALID_REQUEST, f"members that have prepared nothing: {', '.join(sorted(unknown))}")
    return tuple(part.record for part in prepared if part.name == "" or part.name in also.members)


def is_any_prepared(view: "IdView | None", beside: DecidedParts) -> bool:
    """Whether a part of a decision is still prepared: a claim came before it, and aborted only what was open."""
    prepared = view.prepared if view is not None else {}
    return any(Producer(row.producer_id, row.epoch) in prepared for row in beside.parts)
