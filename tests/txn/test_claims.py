"""Which claim and which identity of the client come next."""

import pytest

from kproxy.codec.messages import ErrorCode
from kproxy.txn.claims import (
    NOBODY,
    Claimant,
    initialized_client,
    is_retry,
    needs_client_producer_id,
    needs_producer_id,
    next_claim,
    next_client,
    refuse_replaced,
    was_answered,
)
from kproxy.txn.ids import LAST_EPOCH, TXN_BITS, Producer
from kproxy.txn.log_records import Entry, decode, encode
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView, LogPosition
from tests.txn import bodies

FRESH = 4000
CLIENT = Producer(7, 0)


def claimant(client: Producer = CLIENT, resumed: Producer = NOBODY, nonce: int = 1) -> Claimant:
    return Claimant(bytes([nonce]) * 16, client, resumed, 60_000, "kproxy-1", "loader")


def claimed(view: IdView, who: Claimant, fresh: int = FRESH) -> None:
    """Has the view show the next claim."""
    body = next_claim(view, who, fresh)
    assert view.apply(decode(*encode(Entry("id", body))).body, LogPosition(0, 0))


def test_the_first_claim_takes_a_fresh_producer_id() -> None:
    assert needs_producer_id(None)
    body = next_claim(None, claimant(), FRESH)
    assert (body.generation, body.producer_id, body.first_epoch, body.epochs) == (1, FRESH | TXN_BITS, 0, 64)
    assert (body.client_producer_id, body.client_epoch, body.instance_id) == (7, 0, "kproxy-1")


def test_each_claim_takes_the_next_block() -> None:
    view = IdView("id")
    for n in range(3):
        claimed(view, claimant())
        assert view.claim is not None
        assert (view.claim.first_epoch, view.claim.generation) == (64 * n, 1)
        assert not needs_producer_id(view)


def test_a_producer_id_is_left_before_its_epochs_end() -> None:
    view = IdView("id")
    blocks = 0
    while not view.generations[1:]:
        claimed(view, claimant(), FRESH + blocks)
        blocks += 1
        assert view.claim is not None
        assert view.claim.end_epoch - 1 <= LAST_EPOCH
    assert blocks == 511 + 1  # 511 * 64 = 32,704: another block would end after 32,766
    assert view.claim is not None
    assert (view.claim.generation, view.claim.first_epoch) == (2, 0)
    assert view.claim.producer_id == (FRESH + blocks - 1) | TXN_BITS


@pytest.mark.parametrize(
    ("known", "behind"),
    [
        (NOBODY, Producer(FRESH, 0)),
        (Producer(7, 0), Producer(7, 1)),
        (Producer(0, 3), Producer(0, 4)),  # the first id that a cluster gives
        (Producer(7, 32_765), Producer(7, 32_766)),
        (Producer(7, 32_766), Producer(FRESH, 0)),
        (Producer(7, 32_767), Producer(FRESH, 0)),
    ],
)
def test_the_clients_epoch_rises_until_its_producer_id_is_used_up(known: Producer, behind: Producer) -> None:
    assert next_client(known, FRESH | TXN_BITS) == behind
    assert needs_client_producer_id(known) is (behind.producer_id == FRESH)


@pytest.mark.parametrize(("epochs", "is_needed"), [(62, False), (63, False), (64, True)])
def test_a_block_may_end_with_the_last_epoch(epochs: int, is_needed: bool) -> None:
    view = IdView("id")
    for _ in range(511):
        claimed(view, claimant())
    assert needs_producer_id(view, epochs) is is_needed
    assert (next_claim(view, claimant(), FRESH + 1, epochs).generation == 2) is is_needed


@pytest.mark.parametrize(
    ("resumed", "known", "is_same"),
    [
        (Producer(7, 3), Producer(7, 4), True),
        (Producer(7, 2), Producer(7, 4), False),
        (Producer(7, 5), Producer(7, 4), False),
        (Producer(7, 3), Producer(7, 3), False),
        (Producer(7, 3), Producer(7, 5), False),  # an EndTxn has raised the epoch since
    ],
)
def test_a_request_is_a_retry_as_long_as_the_client_has_what_it_was_given(
    resumed: Producer, known: Producer, is_same: bool
) -> None:
    assert is_retry(resumed, Producer(7, 3), Producer(7, 4), known) is is_same
    assert not is_retry(NOBODY, NOBODY, Producer(7, 4), Producer(7, 4))


def test_nobody_is_as_the_protocol_says() -> None:
    assert Producer(-1, -1) == NOBODY


class TestResuming:
    def test_its_owner_continues(self) -> None:
        view = IdView("id")
        claimed(view, claimant(Producer(7, 3)))
        assert initialized_client(view, Producer(7, 3), -1) == Producer(7, 4)
        assert initialized_client(view, NOBODY, -1) == Producer(7, 4)

    def test_a_request_that_was_answered_claims_nothing(self) -> None:
        view = IdView("id")
        assert not was_answered(None, Producer(7, 3))
        claimed(view, claimant(Producer(7, 3)))
        assert not was_answered(view, Producer(7, 3))
        claimed(view, claimant(Producer(7, 4), Producer(7, 3), nonce=2))
        claimed(view, claimant(NOBODY, nonce=3))  # on behalf of the same producer
        assert was_answered(view, Producer(7, 3))
        assert not was_answered(view, NOBODY)
        with pytest.raises(TxnError) as raised:
            initialized_client(view, Producer(7, 3), -1)
        assert raised.value.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        claimed(view, claimant(Producer(7, 5), Producer(7, 4), nonce=4))
        assert not was_answered(view, Producer(7, 3))

    @pytest.mark.parametrize("zombie", [Producer(7, 3), Producer(7, 2), Producer(8, 9)])
    def test_who_was_replaced_is_fenced(self, zombie: Producer) -> None:
        view = IdView("id")
        claimed(view, claimant(Producer(7, 3)))
        claimed(view, claimant(Producer(7, 4), nonce=2))
        with pytest.raises(TxnError) as raised:
            initialized_client(view, zombie, -1)
        assert raised.value.error_code == ErrorCode.PRODUCER_FENCED

    def test_a_client_without_the_response_to_its_end_continues_unless_it_has_begun_again(self) -> None:
        view = IdView("id")
        claimed(view, claimant(Producer(7, 3)))
        first = view.next_epoch()
        assert first is not None
        body = bodies.decision(1, first, True, next_client=Producer(7, 4))
        body.nonce = claimant(NOBODY).nonce
        assert view.apply(body, LogPosition(1, 1))
        refuse_replaced(view, Producer(7, 3))
        assert initialized_client(view, Producer(7, 3), -1) == Producer(7, 5)
        second = view.next_epoch()
        assert second is not None
        begun = bodies.partitions(1, second, {("t", 0): 0})
        begun.nonce = claimant(NOBODY).nonce
        assert view.apply(begun, LogPosition(2, 2))
        with pytest.raises(TxnError, match="PRODUCER_FENCED"):
            refuse_replaced(view, Producer(7, 3))
        refuse_replaced(view, Producer(7, 4))

    @pytest.mark.parametrize("zombie", [Producer(7, 2), Producer(7, 9), Producer(6, 3), Producer(8, 3)])
    def test_after_an_end_only_the_producer_that_it_ended_continues(self, zombie: Producer) -> None:
        view = IdView("id")
        claimed(view, claimant(Producer(7, 3)))
        first = view.next_epoch()
        assert first is not None
        body = bodies.decision(1, first, True, next_client=Producer(7, 4))
        body.nonce = claimant(NOBODY).nonce
        assert view.apply(body, LogPosition(1, 1))
        with pytest.raises(TxnError, match="PRODUCER_FENCED"):
            refuse_replaced(view, zombie)

    def test_a_producer_whose_transaction_another_ones_claim_aborted_is_fenced(self) -> None:
        view = IdView("id")
        claimed(view, claimant(Producer(7, 3)))
        first = view.next_epoch()
        assert first is not None
        begun = bodies.partitions(1, first, {("t", 0): 0})
        begun.nonce = claimant(NOBODY).nonce
        assert view.apply(begun, LogPosition(1, 1))
        claimed(view, claimant(Producer(7, 4), nonce=2))
        assert view.last is not None
        assert view.last.by_claim
        with pytest.raises(TxnError, match="PRODUCER_FENCED"):
            refuse_replaced(view, Producer(7, 3))

    def test_an_id_that_was_never_claimed_has_no_producer_to_fence(self) -> None:
        view = IdView("id")
        assert not was_answered(view, Producer(7, 3))
        refuse_replaced(view, Producer(7, 3))
        assert next_claim(view, claimant(), FRESH).generation == 1

    def test_an_id_that_nobody_has_goes_to_the_client_that_asks(self) -> None:
        assert initialized_client(None, Producer(9, 9), FRESH) == Producer(FRESH, 0)
