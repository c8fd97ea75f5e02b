"""Ends members' transactions at the brokers that keep them, once kproxy's log has decided them.

Any instance may do this, after any crash and any number of times: the request names the producer id and epoch that are
in the log, and a repeated EndTxn succeeds. What was ended is recorded in the log, so that it is not repeated for ever.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from kproxy.codec._generated.transaction_ended import TransactionEnded
from kproxy.errors import KproxyError, RemoteProtocolError
from kproxy.txn.ids import Producer, turn_of
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.broker_protocol import OVER, BrokerCoordinator, Protocol
from kproxy.txn.procedures.outside import Counters, PacedLog, Report, SideBySide, Signal, Time, Work
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view_values import EndingMember

_SWEEP_SECONDS: Final = 1.0
#: Other instances end what they have decided within this time. After it any instance does, in its turn.
_OTHERS_SECONDS: Final = 5.0


class _Left(NamedTuple):
    transactional_id: str
    part: Producer


class BrokerEnds:
    """Ends members' transactions of all transactional ids of the log."""

    def __init__(
        self,
        requests: Callable[[str], BrokerCoordinator],
        log: PacedLog,
        stats: Counters,
        instance_id: str,
        patience_s: float,
        time: Time,
        side_by_side: SideBySide,
        report: Report,
    ) -> None:
        """``requests``: to the coordinator of a transactional id of the broker's.

        ``patience_s``: how long ``finish`` waits.
        """
        self._requests = requests
        self._log = log
        self._stats = stats
        self._instance_id = instance_id
        self._patience_s = patience_s
        self._time = time
        self._side_by_side = side_by_side
        self._report = report
        self._busy: dict[_Left, Signal] = {}
        self._seen: dict[_Left, float] = {}
        #: Noted in the log, and not read there yet.
        self._noted: set[_Left] = set()

    async def finish(self, transactional_id: str) -> None:
        """Ends all that is decided of an id; what can't be ended in time continues in the background."""
        if not (found := self._left(transactional_id)):
            return
        with self._time.scope(self._patience_s), suppress(OSError, RemoteProtocolError):
            await self._side_by_side.all([partial(self._end, left) for left in found])
            await self._log.read_to_end(transactional_id)

    def _left(self, transactional_id: str) -> Sequence[_Left]:
        view = self._log.views.of(transactional_id)
        return [_Left(transactional_id, part) for part in view.ending] if view is not None else []

    async def _end(self, left: _Left) -> None:
        """Ends one; a second caller waits for the first."""
        if (busy := self._busy.get(left)) is not None:
            await busy.wait()
            return
        done = self._busy[left] = self._time.event()
        try:
            async with self._side_by_side.place():
                await self._end_now(left)
        finally:
            del self._busy[left]
            done.set()

    async def _end_now(self, left: _Left) -> None:
        view = self._log.views.of(left.transactional_id)
        one = view.ending.get(left.part) if view is not None else None
        if one is None or left in self._noted:
            return
        try:
            if not one.empty and not await self._is_told(one):
                await self._note_torn(left, one)
            await self._log.append_unfenced(Entry(left.transactional_id, TransactionEnded(*left.part)))
            self._noted.add(left)
        except (TxnError, OSError, KproxyError) as error:
            why = "the end of a transaction will be sent to the broker again"
            self._report("info", why, left.transactional_id, member=one.name, reason=str(error))

    async def _is_told(self, one: EndingMember) -> bool:
        """Whether it ends, or had ended, as it was decided. TxnError if that is open."""
        name, producer, level, _ = one.broker_transaction
        try:
            await self._requests(name).end(producer, Protocol.of(level), committed=one.committed)
        except TxnError as error:
            if error.error_code not in OVER:
                raise
            return not one.committed  # to abort it is all one; to commit it comes too late
        return True

    async def _note_torn(self, left: _Left, one: EndingMember) -> None:
        """Records a torn end, unless another instance has ended it. OSError, RemoteProtocolError."""
        view = await self._log.read_to_end(left.transactional_id)
        if view is None or left.part not in view.ending:
            return
        self._stats.torn += 1
        why = "a transaction was committed in part: the broker aborted a member before it received the commit"
        slot = one.broker_transaction.transactional_id
        self._report("error", why, left.transactional_id, member=one.name, broker_transactional_id=slot)

    async def run(self) -> None:
        """Ends what was left, for ever: also what others have decided, when they are slow to."""
        async with self._side_by_side.open() as start:
            while True:
                await self._log.pause(_SWEEP_SECONDS)
                self._sweep(start)

    def _sweep(self, start: Callable[[Work], None]) -> None:
        now, seen = self._time.now(), self._seen
        self._seen = {}
        for view in self._log.views.unsettled():
            is_ours = view.claim is not None and view.claim.instance_id == self._instance_id
            for left in self._left(view.transactional_id):
                since = self._seen[left] = seen.get(left, now)
                others_at = since + _OTHERS_SECONDS * (1 + turn_of(self._instance_id, view.transactional_id))
                if left not in self._busy and (is_ours or now >= others_at):
                    start(partial(self._end, left))
        self._noted &= self._seen.keys()
