"""Transactions for clients without transactions, without one of their rules."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from kproxy.txn.prepared_parts import ALONE, DecisionScope
from kproxy.txn.procedures.application_transactions import ApplicationTransaction
from kproxy.txn.procedures.batch_decisions import BatchDecision, BatchDecisions
from kproxy.txn.procedures.broker_control import BrokerControl
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from kproxy.txn.procedures.request_transaction import RequestTransaction
from kproxy.txn.requests import ClientBatch, Written


def compares_nothing(self: ManagedTransaction, *_: Any) -> None:
    """A record that is repeated over another connection is as good as a new one."""


def dooms_nothing(self: ManagedTransaction, why: str) -> None:
    """An error of the client's is no reason to abort."""


async def takes_data_when_doomed(
    self: ManagedTransaction, batches: Sequence[ClientBatch], *, refused: bool, accepted: Callable[[], None]
) -> Sequence[Written]:
    """A doomed transaction takes data: they are in the next one."""
    rows = await self._produce(batches, accepted)
    self._note(batches, rows)
    return rows


async def decides_when_doomed(self: ManagedTransaction, decide: Callable[[], Awaitable[object]]) -> None:
    """A doomed transaction is committed."""
    await self._quiet()
    await decide()


async def aborts_no_part(self: RequestTransaction, batches: Sequence[ClientBatch]) -> Sequence[Written]:
    """A request of which a batch was not written is left to its owner."""
    await self.initialize()
    rows = await self._requests.produce(self.request, batches, implicit=True, accepted=lambda: None, is_job=True)
    await self._requests.end(self.request, committed=True, bumps=False, also=ALONE)
    return rows


async def answers_before_the_end(self: RequestTransaction, batches: Sequence[ClientBatch]) -> Sequence[Written]:
    """A request is answered when its batches are written, before they are committed."""
    await self.initialize()
    rows = await self._requests.produce(self.request, batches, implicit=True, accepted=lambda: None, is_job=True)
    self._requests.start(lambda: self._requests.end(self.request, committed=True, bumps=False, also=ALONE))
    return rows


async def gives_up_when_replaced(
    self: RequestTransaction, batches: Sequence[ClientBatch], *, refused: bool, accepted: Callable[[], None]
) -> Sequence[Written]:
    """A request whose id was taken by what a killed kproxy had asked for is refused."""
    accepted()
    async with self._turns.ordinary():
        return await self._write_once(batches)


def remembers_no_commit(self: BrokerControl, transactional_id: str, batch_id: str | None) -> None:
    """A commit that is repeated finds nothing."""


def begins_anywhere(self: ApplicationTransaction, why: str) -> None:
    """A kproxy that has begun believes a consumer of which it does not know where it is."""


_ABORT: Final = BatchDecisions._abort


async def aborts_as_it_was(self: BatchDecisions, asked: BatchDecision) -> None:
    """An abort does not say that a commit came first."""
    name, owner = asked.transactional_id, asked.owner
    await self.owned(name, owner)
    also = DecisionScope(every=True) if asked.abort_others else self._scope(name, owner, ALONE)
    await _ABORT(self, name, owner, self._ports.open_here(name, owner), also)


async def commits_again(self: BatchDecisions, asked: BatchDecision) -> None:
    """A commit does not ask whether its batch is committed already."""
    view = await self.owned(asked.transactional_id, asked.owner)
    await self._commit(view, DecisionScope(None, tuple(asked.members)), asked.owner)
