"""What was aborted without its client asking for it."""

import pytest

from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import ALONE, DecisionScope
from kproxy.txn.unasked_aborts import has_claim_aborted_data, is_client_unaware, must_be_recorded
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.view_values import ASKED, DOOMED, HAND, LOST, LOST_MEMBERS, DecidedEpoch, IdClaim
from tests.txn.bodies import CLIENT, claim, producer

AT, EARLIER, LATER = LogPosition(5, 0), LogPosition(4, 0), LogPosition(6, 0)
PART = producer(1, 0)


def ended(reason: str, *, committed: bool = False, at: LogPosition = AT, client: Producer = CLIENT) -> IdView:
    """The view after a transaction ended so, and a claim that came at ``AT``."""
    view = IdView("id")
    view.client = CLIENT
    view.claim = IdClaim.of(claim(1, PART), AT)
    view.last = DecidedEpoch(PART, client, CLIENT, committed, reason, by_claim=reason in (LOST, LOST_MEMBERS), at=at)
    return view


REASONS = pytest.mark.parametrize("reason", [ASKED, HAND, DOOMED, LOST, LOST_MEMBERS])


@REASONS
def test_a_client_may_not_know_what_it_did_not_ask_for(reason: str) -> None:
    assert is_client_unaware(ended(reason)) is (reason in (HAND, DOOMED, LOST))
    assert not is_client_unaware(ended(reason, committed=True))
    assert not is_client_unaware(ended(reason, client=Producer(7, 9)))


@REASONS
def test_the_claim_that_holds_has_aborted_data_if_it_says_so(reason: str) -> None:
    assert has_claim_aborted_data(ended(reason)) is (reason == LOST)
    assert not has_claim_aborted_data(ended(reason, at=EARLIER))
    assert not has_claim_aborted_data(ended(reason, at=LATER))
    unclaimed = ended(reason)
    unclaimed.claim = None
    assert not has_claim_aborted_data(unclaimed)


@REASONS
def test_an_abort_of_what_kproxy_had_to_abort_is_recorded(reason: str) -> None:
    assert must_be_recorded(ended(reason), ALONE, committed=False) is (reason == DOOMED)
    assert not must_be_recorded(ended(reason), ALONE, committed=True)
    assert not must_be_recorded(ended(reason), DecisionScope(reason=DOOMED), committed=False)


@pytest.mark.parametrize("view", [None, IdView("id")])
def test_nothing_is_known_of_an_id_without_an_end(view: IdView | None) -> None:
    assert not is_client_unaware(view)
    assert not has_claim_aborted_data(view)
    assert not must_be_recorded(view, ALONE, committed=False)


def test_a_claim_without_an_end_before_it_has_aborted_nothing() -> None:
    view = ended(LOST)
    view.last = None
    assert not has_claim_aborted_data(view)
