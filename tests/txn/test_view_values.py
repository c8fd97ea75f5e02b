"""The values of a view: what a claim covers."""

from kproxy.txn.claims import NOBODY
from kproxy.txn.view_values import IdClaim, LogPosition
from tests.txn.bodies import CLIENT, claim, producer


def test_a_claim_covers_its_block_alone() -> None:
    found = IdClaim.of(claim(1, producer(100, 64), epochs=64, generation=2), LogPosition(7, 8))
    assert (found.generation, found.first_epoch, found.end_epoch) == (2, 64, 128)
    assert [found.covers(producer(100, epoch)) for epoch in (63, 64, 127, 128)] == [False, True, True, False]
    assert not found.covers(producer(101, 64))
    assert not found.covers(producer(99, 64))
    assert (found.client, found.resumed, found.at) == (CLIENT, NOBODY, LogPosition(7, 8))
    assert (found.instance_id, found.client_id, found.timeout_ms) == ("kproxy-1", "app", 60_000)
