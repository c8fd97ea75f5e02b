"""The next claim of a transactional id: the next block of epochs, or the next generation with a fresh producer id."""

from dataclasses import dataclass
from typing import Final

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec.messages import ErrorCode
from kproxy.txn.ids import BLOCK_EPOCHS, LAST_EPOCH, TXN_BITS, Producer, client_producer_id
from kproxy.txn.repeated_ends import Ended, last_end
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView

NOBODY: Final = Producer(-1, -1)


@dataclass(frozen=True, slots=True)
class Claimant:
    """The client that an id is claimed for."""

    nonce: bytes
    client: Producer
    #: As in ``view.Claim``.
    resumed: Producer
    timeout_ms: int
    instance_id: str
    client_id: str
    #: The open transaction that the claim does not abort.
    continued: Producer = NOBODY


def needs_producer_id(view: IdView | None, epochs: int = BLOCK_EPOCHS) -> bool:
    """Whether the next claim takes a producer id that nobody has used: there is none yet, or its epochs end."""
    claim = view.claim if view is not None else None
    return claim is None or claim.end_epoch + epochs - 1 > LAST_EPOCH


def next_claim(
    view: IdView | None, claimant: Claimant, fresh_producer_id: int, epochs: int = BLOCK_EPOCHS
) -> TransactionClaim:
    """The claim that follows a view.

    ``fresh_producer_id``, from the brokers, is used where ``needs_producer_id`` says so.
    """
    if view is None or view.claim is None or needs_producer_id(view, epochs):
        generation, producer_id, first = len(view.generations) + 1 if view else 1, fresh_producer_id | TXN_BITS, 0
    else:
        generation, producer_id, first = view.claim.generation, view.claim.producer_id, view.claim.end_epoch
    return TransactionClaim(
        nonce=claimant.nonce,
        generation=generation,
        producer_id=producer_id,
        first_epoch=first,
        epochs=epochs,
        client_producer_id=claimant.client.producer_id,
        client_epoch=claimant.client.epoch,
        resumed_producer_id=claimant.resumed.producer_id,
        resumed_epoch=claimant.resumed.epoch,
        transaction_timeout_ms=claimant.timeout_ms,
        instance_id=claimant.instance_id,
        client_id=claimant.client_id,
        continued_producer_id=claimant.continued.producer_id,
        continued_epoch=claimant.continued.epoch,
    )


def is_retry(resumed: Producer, given_for: Producer, given: Producer, known: Producer) -> bool:
    """Whether an InitProducerId that names an identity (KIP-360) was answered before.

    ``resumed``: the identity that it names; ``given_for`` and ``given``: those of the last request that was answered;
    ``known``: the one that the client has. Such a request is a retry, or late. It gets the same response and changes
    nothing: the client that has received the response may have a transaction open (Kafka returns the same epoch where
    none is open, and fences the client where one is: ``TransactionMetadata.prepareIncrementProducerEpoch``).
    """
    return resumed == given_for != NOBODY and known == given


def was_answered(view: IdView | None, resumed: Producer) -> bool:
    """Whether the log shows this request as a retry of one that succeeded (``is_retry``)."""
    claim = view.claim if view is not None else None
    return view is not None and claim is not None and is_retry(resumed, claim.resumed, claim.client, view.client)


def initialized_client(view: IdView | None, resumed: Producer, fresh_producer_id: int) -> Producer:
    """The next identity for a client that asks for one (InitProducerId).

    ``resumed``: the one that it has (KIP-360), or ``NOBODY``. TxnError if that is not, or not any more, the id's; and
    CONCURRENT_TRANSACTIONS if another copy of the request has been answered.
    """
    if was_answered(view, resumed):
        raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, "the same InitProducerId has been answered")
    refuse_replaced(view, resumed)
    return next_client(view.client if view is not None else NOBODY, fresh_producer_id)


def refuse_replaced(view: IdView | None, resumed: Producer) -> None:
    """Refuses an identity that the log shows to be replaced (``refuse_former``)."""
    if view is not None and view.claim is not None:
        refuse_former(resumed, view.client, last_end(view), is_open=view.ongoing is not None)


def refuse_former(resumed: Producer, known: Producer, last: Ended | None, *, is_open: bool) -> None:
    """TxnError (PRODUCER_FENCED) where an InitProducerId names an identity (KIP-360) that is not the id's any more.

    A client that has not received the response to its last EndTxn names the identity before that; it has begun nothing.
    """
    is_ended = last is not None and (resumed, known) == (last.client, last.next_client)
    if resumed not in (NOBODY, known) and (not is_ended or is_open):
        raise fenced(known)


def fenced(known: Producer) -> TxnError:
    """The error for a request that names another owner of an id than the current one."""
    why = f"producer id {known.producer_id} at epoch {known.epoch} has the transactional id by now"
    return TxnError(ErrorCode.PRODUCER_FENCED, why)


def overtaken() -> TxnError:
    """The error where other instances claim the id again and again: the client retries."""
    return TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, "others claim the transactional id at the same time")


def next_client(known: Producer, fresh_producer_id: int) -> Producer:
    """The client's identity after ``known``: the next epoch, or epoch 0 of a fresh producer id."""
    if needs_client_producer_id(known):
        return Producer(client_producer_id(fresh_producer_id), 0)
    return Producer(known.producer_id, known.epoch + 1)


def needs_client_producer_id(known: Producer) -> bool:
    """Whether ``next_client`` uses a fresh producer id."""
    return known.producer_id < 0 or known.epoch >= LAST_EPOCH
