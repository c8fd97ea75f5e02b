"""Rules of claims and of epochs as they must not be."""

from functools import partial
from types import MappingProxyType
from typing import Any, Final

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_partitions import TransactionPartitions
from kproxy.txn import view as view_module
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.view_values import IdClaim

_CLAIM_ONCE: Final = ClaimKeeper.claim_once
_INITIALIZE: Final = ClaimKeeper.claim_to_initialize
_TAKE_EPOCH: Final = ClaimKeeper.take_epoch
_PARTITIONS: Final = IdView._partitions


async def believes_the_log(
    self: ClaimKeeper, view: IdView | None, client: Producer, resumed: Producer = NOBODY, continued: Producer = NOBODY
) -> tuple[bool, IdView | None]:
    """A claim that the log has taken holds, whatever the view says of it."""
    won, found = await _CLAIM_ONCE(self, view, client, resumed, continued)
    instance: Any = self._tools.log
    nonce = f"{instance.name}{instance.life}{instance._nonces:>14}".encode()
    for entry, at_ms in instance.world.log:
        if not won and isinstance(entry.body, TransactionClaim) and entry.body.nonce == nonce:
            self.claim = IdClaim.of(entry.body, LogPosition(0, at_ms))
            self._sequence, self._next_epoch = 1, self.claim.first_epoch
            self.client = self.client if client == NOBODY else client
            return True, found
    return won, found


def holds_what_it_has(self: ClaimKeeper, _: IdView | None) -> bool:
    """A claim holds until an append fails."""
    return self.claim is not None


async def takes_its_own_epoch(self: ClaimKeeper) -> Producer:
    """The next epoch of the claim that this instance believes in."""
    if self.claim is None:
        await self.claim_again()
    assert self.claim is not None
    producer = Producer(self.claim.producer_id, self._next_epoch)
    self._next_epoch += 1
    return producer


def claims_by_writing(self: IdView, body: TransactionPartitions, at: LogPosition) -> bool:
    """A record under the epoch after the block claims that epoch."""
    claim = self.claim
    if claim is not None and body.producer_id == claim.producer_id and body.epoch >= claim.end_epoch:
        self.claim = IdClaim(**{**_fields(claim), "first_epoch": body.epoch, "nonce": body.nonce})
    return _PARTITIONS(self, body, at)


def _fields(claim: IdClaim) -> dict[str, Any]:
    return {name: getattr(claim, name) for name in IdClaim.__slots__}


#: What ``claims_by_writing`` reads.
CLAIMS_BY_WRITING: Final = MappingProxyType({**view_module._RULES, TransactionPartitions: claims_by_writing})


async def takes_the_next_epoch(self: ClaimKeeper) -> Producer:
    """The epoch after the block needs no claim."""
    claim = self.claim
    if claim is None or self._next_epoch < claim.end_epoch:
        return await _TAKE_EPOCH(self)
    producer = Producer(claim.producer_id, self._next_epoch)
    self.claim = IdClaim(**{**_fields(claim), "first_epoch": producer.epoch})
    self._sequence, self._next_epoch = 0, producer.epoch + 1
    return producer


async def continues_for_anybody(self: ClaimKeeper, resumed: Producer) -> IdView:
    """A claim for a new producer continues what is open, as one for the same does."""
    view = await self.read_to_end()
    open_part = view.ongoing.producer if view is not None and view.ongoing is not None else NOBODY
    self.claim_for = partial(ClaimKeeper.claim_for, self, continued=open_part)  # type: ignore[method-assign]
    try:
        return await _INITIALIZE(self, resumed)
    finally:
        del self.claim_for


def continued_by_anybody(body: TransactionClaim) -> Producer:
    """The epoch that a claim means to continue, for any client."""
    return Producer(body.continued_producer_id, body.continued_epoch)
