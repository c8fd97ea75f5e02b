"""One transactional id at its coordinator: who may end what, and which epoch is next."""

import pytest

from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.transactional_ids import LAST_EPOCH, TransactionalId, TxnState

NONE, BUSY = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
INVALID, FENCED = ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED


def opened() -> TransactionalId:
    owner = TransactionalId(7, 3, timeout_ms=100)
    assert owner.join(1_000, [("t", 0)]) is NONE
    return owner


def test_it_begins_with_the_first_that_joins_and_takes_more() -> None:
    owner = opened()
    assert owner.join(1_050, [("t", 1)], ["g"]) is NONE
    assert (owner.state, owner.began_ms) == (TxnState.ONGOING, 1_000)
    assert (owner.places, owner.groups) == ({("t", 0), ("t", 1)}, {"g"})
    assert [owner.is_expired(now) for now in (1_099, 1_100)] == [False, True]


@pytest.mark.parametrize("raises", [False, True], ids=["TV1", "TV2"])
@pytest.mark.parametrize("committed", [False, True], ids=["abort", "commit"])
def test_while_it_is_prepared_everything_has_to_wait(raises: bool, committed: bool) -> None:
    owner = opened()
    end = owner.end_and_raise if raises else owner.end
    assert end(7, 3, committed) is NONE
    assert (owner.prepared, owner.committed, owner.epoch) == (True, committed, 3 + raises)
    assert owner.join(1_000, [("t", 0)]) is BUSY
    assert [end(7, owner.epoch, again) for again in (True, False)] == [BUSY, BUSY]
    owner.complete()
    assert (owner.prepared, owner.committed) == (False, committed)
    assert end(7, 3, committed) is NONE
    assert end(7, 3, not committed) is INVALID


def test_who_raises_its_epoch_can_end_nothing_of_the_next_with_the_one_before() -> None:
    owner = opened()
    assert owner.end_and_raise(7, 3, True) is NONE
    owner.complete()
    assert owner.join(1_000, [("t", 0)]) is NONE
    assert owner.end_and_raise(7, 3, True) is FENCED
    assert owner.end_and_raise(8, 4, True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert owner.end_and_raise(7, 4, False) is NONE


def test_the_former_owner_is_fenced() -> None:
    owner = opened()
    owner.fence()
    assert (owner.state, owner.epoch) == (TxnState.PREPARE_ABORT, 4)
    owner.complete()
    assert owner.end(7, 3, True) is FENCED
    assert owner.renew(None) is NONE
    assert (owner.state, owner.epoch, owner.last_epoch) == (TxnState.EMPTY, 5, -1)
    assert owner.renew(4) is FENCED


def test_a_repeated_renewal_receives_the_same() -> None:
    owner = TransactionalId(7, 3)
    assert (owner.renew(3), owner.epoch) == (NONE, 4)
    assert (owner.renew(3), owner.epoch) == (NONE, 4)
    assert (owner.renew(2), owner.epoch) == (FENCED, 4)


def test_after_the_last_epoch_is_another_producer() -> None:
    owner = opened()
    owner.epoch = LAST_EPOCH
    assert owner.end_and_raise(7, LAST_EPOCH, True) is NONE
    owner.next_id = 8
    assert (owner.producer_id, owner.following) == (7, (8, 0))
    owner.complete()
    assert (owner.producer_id, owner.epoch, owner.following) == (8, 0, (8, 0))
    assert owner.end_and_raise(7, LAST_EPOCH, True) is NONE
    assert owner.end_and_raise(7, LAST_EPOCH, False) is INVALID
    assert owner.end_and_raise(7, LAST_EPOCH - 1, True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert owner.join(1_000, [("t", 0)]) is NONE
    assert owner.end_and_raise(7, LAST_EPOCH, True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert owner.end_and_raise(8, 0, False) is NONE
