"""Replacements of kproxy's rules of the brokers' transactions, to see what happens without them."""

from typing import Any, Final

from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.coordinators import TRANSACTION
from kproxy.net.txn.broker.broker_requests import BrokerRequests
from kproxy.txn.client_sequences import ClientSequences, Order
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.broker_owner import BrokerOwner
from kproxy.txn.procedures.broker_protocol import Protocol
from kproxy.txn.procedures.continuing import continue_client
from kproxy.txn.requests import ClientBatch, TxnRequest
from kproxy.txn.stored_epochs import LastEnd, StoredEpoch

_ADMIT: Final = BrokerOwner._admit
_RAISE_EPOCH: Final = BrokerOwner._raise_epoch
_COMMIT_OFFSETS: Final = BrokerRequests.commit_offsets


# -- what is asked of the broker


async def told_without_an_answer(
    self: BrokerRequests, producer: Producer, protocol: Protocol, *, committed: bool
) -> Producer | None:
    """An EndTxn is sent once, and taken for done; the next transaction gets a new epoch."""
    try:
        broker = await self._cluster.coordinators.find(self._name, TRANSACTION)
        await self._cluster.call(
            broker.address, EndTxnRequest(self._name, *producer, committed), EndTxnResponse, (0, 4)
        )
    except (OSError, RemoteProtocolError):
        return None
    return None


async def keeps_the_epoch(self: BrokerOwner) -> None:
    """The next transaction begins under the epoch of the last."""
    self._is_used = False


async def denies_its_commit(self: BrokerOwner, committed: bool) -> None:
    """A client that was replaced is answered so, whatever became of its transaction."""
    await _RAISE_EPOCH(self, committed and not self._is_used)


async def without_a_generation(
    self: BrokerRequests, producer: Producer, protocol: Protocol, offsets: TransactionOffsets
) -> None:
    """Nobody is asked whether the consumer is still in its group."""
    anybody = offsets.replaced(generation_id=-1, member_id="", group_instance_id=None)
    await _COMMIT_OFFSETS(self, producer, protocol, anybody)


async def at_once(*_: Any, **__: Any) -> None:
    """Nothing is waited for."""


# -- a client after a restart of kproxy


async def in_the_brokers_name(stored: StoredEpoch, requests: BrokerRequests, *more: Any) -> tuple[Producer, LastEnd]:
    """A client continues under the epoch that the broker has now, whichever client has received it."""
    described = await requests.describe()
    assert described is not None
    newest = Producer(described.producer_id, described.producer_epoch)
    return await continue_client(stored._replace(upstream=newest), requests, *more)


def nothing_was_open(*_: Any) -> LastEnd:
    """Forgets the open transaction; the client writes on."""
    return LastEnd.NONE


def all_is_lost(*_: Any) -> LastEnd:
    """A transaction whose end was in flight is taken for aborted."""
    return LastEnd.LOST


# -- who is let in


def always_next(self: ClientSequences[Any], client: Producer, batch: ClientBatch) -> tuple[Order, None]:
    """Takes every batch for a new one."""
    return Order.NEXT, None


def admits_who_had_it(self: BrokerOwner, request: TxnRequest, coordinator: str | None) -> None:
    """A former owner of the id is admitted like its owner."""
    client = self.id.client
    had = request.client.epoch <= client.epoch
    _ADMIT(self, request._replace(client=client) if had else request, coordinator)
