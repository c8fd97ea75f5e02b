"""Broken replacements of kproxy's rules for groups that the broker coordinates."""

from contextlib import suppress
from typing import Any

import trio

from kproxy.codec._generated.transaction_ended import TransactionEnded
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.broker_ends import BrokerEnds, _Left
from kproxy.txn.procedures.member_ids import MemberIds
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view_values import BrokerTransaction


async def by_who_decides_alone(self: BrokerEnds) -> None:
    """Nobody looks for what was left."""
    await trio.sleep_forever()


async def noted_first(self: BrokerEnds, left: _Left) -> None:
    """The log says that the broker was informed before it is."""
    view = self._log.views.of(left.transactional_id)
    one = view.ending.get(left.part) if view is not None else None
    if one is None or left in self._noted:
        return
    self._noted.add(left)
    with suppress(OSError, TxnError):
        await self._log.append_unfenced(Entry(left.transactional_id, TransactionEnded(*left.part)))
        with trio.move_on_after(0.1):
            await self._is_told(one)


def free_at_once(self: MemberIds, member: Producer, transaction: BrokerTransaction) -> None:
    """Another member may write under the id of one that is not ended."""
    self.give_back(transaction.transactional_id)


def never_fenced(self: MemberIds) -> None:
    """An id that rests keeps its epoch."""


async def unasked(*_: Any, **__: Any) -> None:
    """Nobody is asked."""


def nameless(*_: Any) -> None:
    """The log does not say where a member writes."""
