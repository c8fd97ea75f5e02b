"""Rules of rejected producer ids as they must not be."""

from kproxy.txn.procedures.rejects import Rejects
from kproxy.txn.unknown import Met


async def rejects_unread(self: Rejects, one: Met) -> bool:
    """Nothing of it is in the log, as far as this instance has read that."""
    await self._log.reject(one.producer_id)
    return True


async def looks_unread(self: Rejects) -> bool:
    """The log is not read first."""
    return any([await self._reject(one) for one in list(self._views.unknown)])


async def rejects_what_nobody_met(self: Rejects, producer_id: int) -> None:
    """No reader has to have met data of it."""
    await self._read_all()
    if self._views.of_producer(producer_id) is None:
        await self._log.reject(producer_id)


async def rejects_nothing(self: Rejects, one: Met) -> bool:
    """Readers wait."""
    return False
