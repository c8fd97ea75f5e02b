"""Produce requests of clients that know nothing of transactions, written into one that was begun for them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from kproxy.txn.procedures.outside import Signal
from kproxy.txn.requests import ClientBatch, Written


class ImplicitTransaction(Protocol):
    """The transaction that takes the Produce requests of a client."""

    def took(self, connection: int, *, answered: bool) -> None:
        """Records a request that will be handed over; ``answered``: its client waits for a response."""
        ...

    def came(self, connection: int, batches: Sequence[ClientBatch], arrival_ms: int) -> None:
        """Records a request that is about to be written; ``arrival_ms`` is the time of records that had none."""
        ...

    async def write(
        self, batches: Sequence[ClientBatch], *, refused: bool, accepted: Callable[[], None]
    ) -> Sequence[Written]:
        """Writes a request that was taken; the result of each batch. ``refused``: others of it can't be written.

        ``accepted`` is called when they have their place in the order. TxnError: none was written to be committed.
        """
        ...

    def takes_at_once(self, batches: Sequence[ClientBatch]) -> bool:
        """Whether ``write`` would wait for nothing before these have their place in the order."""
        ...

    def write_at_once(self, batches: Sequence[ClientBatch], written: Callable[[Sequence[Written]], None]) -> None:
        """Writes batches that it ``takes_at_once``, like ``write``; ``written`` is called with the result of each."""
        ...

    def failed(self, why: str) -> None:
        """Records that the client receives an error."""
        ...

    def done(self) -> None:
        """Records that a request that was taken is complete."""
        ...


class Captured(NamedTuple):
    """The content of one Produce request."""

    batches: Sequence[ClientBatch]
    #: Whether other batches of the request can't be written.
    refused: bool


async def write_captured(
    transaction: ImplicitTransaction,
    connection: int,
    arrival_ms: int,
    read: Callable[[], Awaitable[Captured]],
    before: Signal,
    accepted: Signal,
) -> Sequence[Written]:
    """Writes a request that the transaction ``took``. TxnError: the client receives an error, which dooms it.

    It waits for ``before``, and sets ``accepted`` when the next request of the connection may begin.
    """
    try:
        if not before.is_set():
            await before.wait()
        batches, refused = await read()
        transaction.came(connection, batches, arrival_ms)
        if not (batches or refused):
            return ()
        return await transaction.write(batches, refused=refused, accepted=accepted.set)
    except BaseException as error:
        transaction.failed(str(error))
        raise
    finally:
        accepted.set()
        transaction.done()
