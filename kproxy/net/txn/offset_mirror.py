"""Writes the group offsets that the transaction log commits to the brokers' own group offsets, soon afterwards."""

from collections.abc import Awaitable, Callable
from typing import Final

import structlog
import trio

from kproxy.codec._generated.transaction_mirrored import TransactionMirrored
from kproxy.codec.messages import ErrorCode
from kproxy.errors import KproxyError
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.txn.offset_writes import PREFIX, fence, write
from kproxy.net.txn.transaction_log import TransactionLog
from kproxy.txn.ids import turn_of
from kproxy.txn.log_records import Entry
from kproxy.txn.logged_group_offsets import Commit, unmirrored
from kproxy.txn.txn_error import TxnError

log = structlog.get_logger("kproxy.group_offsets")

#: Offsets that a group commits meanwhile are written with it: the log answers for it as long.
_LINGER_SECONDS: Final = 1.0
#: Offsets that others have left for as long are written here.
_SWEEP_SECONDS: Final = 30.0
_AT_A_TIME: Final = 4
#: Groups that are remembered.
_MOST_GROUPS: Final = 100_000
_TRIES: Final = 3
#: The most memory for groups' offsets that are in open transactions, or that brokers do not take. None can be
#: dropped before the broker has it: its group would begin at an older one. So no more are accepted, until some are
#: aborted or written.
_MOST_BYTES: Final = 64 << 20


class OffsetMirror:
    """Writes a group's offsets under a fence: asks for the group's transactional id, reads the log, then writes.

    A later request for the id fences this one, and reads in the log what it did. A plain commit must find nobody before
    it who still could write what was committed earlier: so between the last record that says MIRRORED and it comes a
    fence.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactions: TransactionLog,
        instance_id: str,
        read_to_end: Callable[[], Awaitable[None]],
    ) -> None:
        """``read_to_end`` reads all of the log; OSError or RemoteProtocolError if that can't be done."""
        self._cluster = cluster
        self._log = transactions
        self._instance_id = instance_id
        self._read_to_end = read_to_end
        self._asked: dict[str, None] = {}
        self._wake = trio.Event()
        self._locks: dict[str, trio.Lock] = {}
        self._limit = trio.Semaphore(_AT_A_TIME)
        #: Groups whose offsets were written since they were last fenced here.
        self._unfenced: dict[str, None] = {}
        self._left: set[tuple[Commit, str]] = set()
        self._is_full = False

    def view_changed(self, entry: Entry) -> None:
        """Takes each record that changed a view."""
        if isinstance(entry.body, TransactionMirrored):
            self._unfenced[entry.body.group_id] = None
            if len(self._unfenced) > _MOST_GROUPS:
                del self._unfenced[next(iter(self._unfenced))]

    def check_room(self) -> None:
        was_full, self._is_full = self._is_full, self._log.views.offsets_bytes >= _MOST_BYTES
        if not self._is_full:
            return
        why = f"offsets of {_MOST_BYTES} bytes are in open transactions, or could not be written to the brokers' groups"
        if not was_full:
            log.warning(
                "offsets in transactions are refused until earlier ones are written",
                reason=why,
                grant=f"Read on the groups, Write on transactional ids that begin with {PREFIX}, to kproxy's principal",
            )
        raise TxnError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, why)

    def committed(self, transactional_id: str) -> None:
        """Has the offsets written that transactions of an id have committed."""
        view = self._log.views.of(transactional_id)
        if view is not None and view.unmirrored:
            self._asked.update((group_id, None) for _, group_id in view.unmirrored)
            self._wake.set()

    # -- what a plain commit waits for

    def is_unsettled(self, group_id: str) -> bool:
        """Whether something of a group is unwritten, or could be written again, as far as the log is read."""
        return group_id in self._unfenced or bool(unmirrored(self._log.views, group_id).commits)

    async def settle(self, group_id: str) -> None:
        """Returns when all offsets of a group that were committed before are written, and nobody can write them again.

        The log has to be read to its end. OSError, KproxyError if that fails.
        """
        async with self._lock(group_id):
            for _ in range(_TRIES):
                if not self.is_unsettled(group_id):
                    return
                await self._write(group_id)
                await self._read_to_end()
        raise OSError(f"offsets of group {group_id} are being written elsewhere")

    async def _write(self, group_id: str) -> None:
        self._unfenced.pop(group_id, None)
        try:
            producer = await fence(self._cluster, group_id)
            await self._read_to_end()
        except BaseException:
            self._unfenced[group_id] = None
            raise
        found = unmirrored(self._log.views, group_id)
        if not found.commits:
            return
        await write(self._cluster, group_id, producer, found)
        for transactional_id, part in found.commits:
            await self._log.append_unfenced(Entry(transactional_id, TransactionMirrored(*part, group_id)))

    def _lock(self, group_id: str) -> trio.Lock:
        if len(self._locks) >= _MOST_GROUPS:
            self._locks = {name: lock for name, lock in self._locks.items() if lock.locked()}
        return self._locks.setdefault(group_id, trio.Lock())

    # -- in the background

    async def run(self) -> None:
        """Writes what was committed here, and what others have left; for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._sweep)
            while True:
                await self._wake.wait()
                await trio.sleep(_LINGER_SECONDS)
                self._wake = trio.Event()
                while self._asked:
                    group_id = next(iter(self._asked))
                    del self._asked[group_id]
                    await self._limit.acquire()
                    nursery.start_soon(self._mirror, group_id)

    async def _mirror(self, group_id: str) -> None:
        try:
            async with self._lock(group_id):
                if unmirrored(self._log.views, group_id).commits:
                    await self._write(group_id)
        except (OSError, KproxyError) as error:
            log.info("group offsets will be written again", group_id=group_id, reason=str(error))
        finally:
            self._limit.release()

    async def _sweep(self) -> None:
        """Own leavings at once; those of others, which may be at it, when they are still there the next time."""
        wait = turn_of(self._instance_id)  # instances that began at once are not to write all at once
        while True:
            left: set[tuple[Commit, str]] = set()
            for view in self._log.views.unsettled():
                is_ours = view.claim is not None and view.claim.instance_id == self._instance_id
                for part, group_id in view.unmirrored:
                    key = (Commit(view.transactional_id, part), group_id)
                    left.add(key)
                    if is_ours or key in self._left:
                        self._asked[group_id] = None
            self._left = left
            self._wake.set()
            await trio.sleep(_SWEEP_SECONDS * (1 + wait))
            wait = 0.0
