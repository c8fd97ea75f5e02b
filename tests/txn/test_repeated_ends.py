"""The last end that a client asked for, by what the log says."""

import pytest

from kproxy.codec.messages import Message
from kproxy.txn.ids import Producer
from kproxy.txn.repeated_ends import Ended, last_end
from kproxy.txn.snapshot_views import decode_views, encode_views
from kproxy.txn.view import IdView, LogPosition
from tests.txn.bodies import CLIENT, claim, decision, expiry, partitions, producer

P0, P1, P2 = (producer(100, epoch) for epoch in range(3))
NEXT = Producer(7, 1)


def view_of(*records: Message) -> IdView:
    view = IdView("id")
    for offset, body in enumerate(records):
        assert view.apply(body, LogPosition(offset, offset))
    return view


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("next_client", [CLIENT, NEXT], ids=["TV1", "TV2"])
@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize("from_snapshot", [False, True])
def test_the_last_decision_is_known_also_when_the_id_has_expired(
    committed: bool, next_client: Producer, expired: bool, from_snapshot: bool
) -> None:
    view = view_of(claim(1, P0), decision(1, P0, committed, next_client=next_client), *([expiry(1)] if expired else []))
    if from_snapshot:
        view = decode_views(encode_views([view])).views[0]
    assert last_end(view) == Ended(CLIENT, committed, next_client)


def test_an_abort_by_a_claim_is_no_end() -> None:
    assert last_end(None) is None
    assert last_end(view_of(claim(1, P0))) is None
    view = view_of(claim(1, P0), partitions(1, P0, {("t", 0): 0}), claim(2, P2, client=NEXT))
    assert last_end(view) is None


@pytest.mark.parametrize("other", [Producer(7, 2), Producer(8, 0), Producer(3, 0)])
def test_nor_is_a_decision_after_which_another_producer_took_the_id(other: Producer) -> None:
    """Brokers hand out producer ids in blocks: a later one may be a lower number."""
    view = view_of(claim(1, P0), decision(1, P0, True, next_client=NEXT), claim(2, P2, client=other))
    assert last_end(view) is None
