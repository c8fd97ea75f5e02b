"""Drivers' commits without a rule of what they cover (``kproxy.txn.prepared_parts``)."""

from collections.abc import Collection
from typing import Any, Final

from kproxy.txn import prepared_parts
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.procedures import batch_decisions
from kproxy.txn.view import IdView
from verification.explorer import invariants
from verification.explorer.variant import Variant
from verification.simulation.transactions import broken_members as rules
from verification.simulation.transactions.broken_rules import keep


def _own(view: IdView) -> dict[Producer, Any]:
    return {part: one for part, one in view.prepared.items() if one.name == ""}


def covers_what_members_brought(view: IdView, owners: Collection[Producer], _: DecisionScope) -> set[Producer]:
    """A commit covers the own parts of the owners of which it names members, and no other."""
    return {part for part, one in _own(view).items() if one.client in owners}


def covers_the_epoch_of_members(view: IdView, _: object, also: DecisionScope) -> set[Producer]:
    """A commit covers the own parts that have the epoch which its members joined."""
    epochs = {one.owner for part, one in view.members.items() if one.name in (also.members or ())}
    return {part for part in _own(view) if part in epochs}


def covers_no_former_owner(view: IdView, owners: Collection[Producer], also: DecisionScope) -> set[Producer]:
    """A commit without members covers nothing that a former owner has prepared."""
    return _OWN_PARTS(view, set(owners), also._replace(former=False))


def covers_any_batch(view: IdView, owners: Collection[Producer], also: DecisionScope) -> set[Producer]:
    """A commit does not ask under which batch id a part was prepared."""
    return _OWN_PARTS(view, set(owners), also._replace(batch_id=None))


_OWN_PARTS: Final = prepared_parts._own_parts
_ALL: Final = (
    (prepared_parts, "_own_parts", rules.covers_every_own_part),
    (batch_decisions, "refuse_ambiguous", keep),
)
_ACCEPTS_ABORTED: Final = ((batch_decisions, "refuse_other_batch", keep),)


def _covers(how: Any) -> tuple[Any, ...]:
    return ((prepared_parts, "_own_parts", how),)


DRIVER_VARIANTS: Final = (
    Variant("all own parts are covered", _ALL, "drivers", invariants.TORN),
    Variant("all own parts are covered, by members alone", _ALL, "drivers, one with members alone", invariants.TORN),
    Variant("no former owner's part is covered", _covers(rules.covers_its_own_part), "drivers", invariants.TORN),
    Variant(
        "a part is covered by its members alone",
        _covers(covers_what_members_brought),
        "one driver without members",
        invariants.LOST,
    ),
    Variant(
        "a part is covered with members of its epoch",
        _covers(covers_the_epoch_of_members),
        "drivers",
        invariants.TORN,
    ),
    Variant(
        "no part is covered without a member",
        _covers(covers_no_former_owner),
        "one driver without members",
        invariants.LOST,
    ),
    Variant(
        "own parts of several owners are covered",
        ((batch_decisions, "refuse_ambiguous", keep),),
        "drivers without members",
        invariants.ABORTED,
    ),
    Variant(
        "parts of other batches are covered",
        (*_covers(covers_any_batch), *_ACCEPTS_ABORTED),
        "drivers with batch ids",
        invariants.LOST,
    ),
    Variant(
        "a batch that was aborted is committed without its part",
        _ACCEPTS_ABORTED,
        "drivers with batch ids, one aborts all else",
        invariants.LOST,
    ),
)
