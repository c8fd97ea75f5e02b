"""Aborts that no client asked for, by a claim or by kproxy: the client may not know of them yet."""

from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.view import IdView
from kproxy.txn.view_values import ASKED, DOOMED, LOST, LOST_MEMBERS, DecidedEpoch


def _unasked_abort(view: IdView | None) -> DecidedEpoch | None:
    return view.last if view is not None and view.is_doomed else None


def is_client_unaware(view: IdView | None) -> bool:
    """Whether what the client itself wrote is aborted, by a claim or by kproxy, and the client may not know it."""
    last = _unasked_abort(view)
    return last is not None and last.reason != LOST_MEMBERS


def has_claim_aborted_data(view: IdView | None) -> bool:
    """Whether the claim that holds has aborted data of the client's."""
    last = _unasked_abort(view)
    claim = view.claim if view is not None else None
    return claim is not None and last is not None and last.at == claim.at and last.reason == LOST


def must_be_recorded(view: IdView | None, also: DecisionScope, *, committed: bool) -> bool:
    """Whether an end of nothing aborts what kproxy had to abort before: only after such an abort the client continues.

    So the log has to show it.
    """
    last = _unasked_abort(view)
    return not committed and also.reason == ASKED and last is not None and last.reason == DOOMED
