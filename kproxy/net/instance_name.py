"""One process for each ``instance.id``: claimed at the start, watched while it runs.

claims     each process writes a note under the next epoch of the producer id that the former one writes under, and
           reads it back. What the former one wrote before is read; what it writes after is refused by the broker.
questions  a process that starts first finds out whether the former one is alive: by the kernel, if that ran here,
           else by a question in the log, for ``_PATIENCE_SECONDS``. If it is alive, this one does not start,
           unless it was asked to take over.
watch      each process waits for notes and questions of others in a long poll. One that finds the note of another
           process has lost the name, and ends at once.
"""

import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

import structlog
import trio

from kproxy.config import ExitCode, StartupError
from kproxy.config.retry_options import RetryOptions
from kproxy.dedup.instance_holder import BELL_BYTES, Holder, Holders, Process, encode_key, encode_value
from kproxy.dedup.producer_ids import KPROXY_BIT, LAST_EPOCH
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.backoff import Backoff
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.lane_writer import Fenced, LaneWriter
from kproxy.net.own_topic import TopicDeleted
from kproxy.net.presence import Presence, State

log = structlog.get_logger("kproxy.lane_log")

#: How long a process that may be alive on another host has to answer.
_PATIENCE_SECONDS: Final = 3.0
_LOOK_AGAIN_SECONDS: Final = 0.1
_KIND: Final = "instance_id_taken"


class InstanceTaken(StartupError):
    """Another process has the ``instance.id``: this one ends."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.INSTANCE_TAKEN)


class Notes(NamedTuple):
    """The log of the notes."""

    #: Reads it to its end. OSError, RemoteProtocolError, Refused.
    look: Callable[[], Awaitable[None]]
    #: Waits for a note or a question, for some time; whether something was appended. Errors as of ``look``.
    wait: Callable[[], Awaitable[bool]]
    #: Writes an entry, and again before it expires.
    keep: Callable[[bytes, bytes], object]
    #: Writes an entry once.
    put: Callable[[bytes, bytes | None], object]


class InstanceName:
    """This process's right to its name."""

    def __init__(self, cluster: Cluster, config: RetryOptions, *, replaces: bool) -> None:
        """``replaces``: takes over from a process that is alive."""
        self._cluster = cluster
        self._config = config
        self._replaces = replaces
        self._id = config.instance_id
        self._presence = Presence(int(cluster.network.wall() * 1000))
        #: Takes what is read of the log.
        self.holders = Holders(config.instance_id)
        self._own: Holder | None = None
        #: The process whose place this one takes; None once that is settled, or if there is none.
        self._admitted: Process | None = None
        self._asked = self._rings = self._held = self._stopped = False
        #: A process that claimed at the same time, and is not fenced yet.
        self._unfenced: Holder | None = None
        #: The other cluster that the newest note was copied from, and with it what its process wrote; None: it was not.
        self.copied_from: str | None = None

    # -- at the start

    async def claim(self, writer: LaneWriter, look: Callable[[], Awaitable[None]], *, fresh: bool = False) -> None:
        """Returns when no other process can write this instance's entries, and all that were written are read.

        ``fresh``: under another producer id; the broker has lost the present one. ``writer`` must not be in use.
        InstanceTaken; TopicDeleted, Refused.
        """
        backoff = Backoff(self._config)
        self._presence.open()
        while True:
            try:
                await look()
                if await self._claims(writer, look, fresh=fresh):
                    break
            except TopicDeleted:
                raise
            except Fenced as fenced:
                fresh = fresh or fenced.is_lost
            except (OSError, RemoteProtocolError):
                self._cluster.count_error("producer_state_log")
            await backoff.pause()
        self._held = True

    async def _claims(self, writer: LaneWriter, look: Callable[[], Awaitable[None]], *, fresh: bool) -> bool:
        """Whether the note that is written now follows the one that it fences."""
        former = self._ours(self.holders.holder)
        if former is not None and former.process != self._presence.process:
            if self._held:
                raise self._lost(former)
            if former.process != self._admitted and not await self._admit(former, writer, look):
                return False
        target = self._unfenced or former
        if target is None or fresh or target.epoch >= LAST_EPOCH:
            producer_id, epoch = await self._cluster.new_producer_id() | KPROXY_BIT, 0
        else:
            producer_id, epoch = target.producer_id, target.epoch + 1
        own = Holder(self._presence.process, producer_id, epoch, self._cluster.identity.cluster_id)
        if self._own is not None:
            own = own._replace(answered=self._own.answered)  # who asks may not have seen it yet
        writer.begin(producer_id, epoch)
        writer.withdraw(encode_key(self._id))  # of a former epoch
        padding = os.urandom(BELL_BYTES) if self._rings else b""
        await writer.write(encode_key(self._id), encode_value(own, padding), self._now_ms())
        await look()
        found = self.holders
        if found.holder is None or found.holder.claim != own.claim:
            return False  # another process was first, or followed at once
        self._own = own
        before = self._ours(found.before)
        if (before and before.claim) != (former and former.claim) and not own.fences(before):
            self._unfenced = before  # it came in between
            return False
        self._unfenced = None
        return True

    def _ours(self, holder: Holder | None) -> Holder | None:
        """A process that had the name in this cluster; None for one whose entries were copied from another cluster."""
        own = self._cluster.identity.cluster_id
        if holder is None or None in (holder.cluster_id, own) or holder.cluster_id == own:
            return holder
        self.copied_from = holder.cluster_id
        return None

    async def _admit(self, former: Holder, writer: LaneWriter, look: Callable[[], Awaitable[None]]) -> bool:
        """Whether the name may be taken from a process; False: another has it by now. InstanceTaken if it is alive."""
        other = former.process
        state = State.DEAD if former.stopped else self._presence.state(other)
        self._rings = state is not State.DEAD
        if self._rings and self._replaces:
            self._warn("taking over from another process with this instance.id", other)
        elif self._rings:
            await self._ask(writer)
            if self._presence.state(other) is State.ALIVE or await self._answers(other, look):
                self._cluster.count_error(_KIND)
                raise InstanceTaken(
                    f"another process runs with instance.id = '{self._id}' on host {other.host} (process {other.pid}, "
                    f"since {_time(other.started_ms)}): give each process its own instance.id, or use --replace to "
                    "take over"
                )
            if self.holders.holder is None or self.holders.holder.claim != former.claim:
                return False
            if not self.holders.holder.stopped:
                self._warn("the former process with this instance.id did not answer; taking over", other)
        self._admitted = other
        return True

    async def _ask(self, writer: LaneWriter) -> None:
        """Writes a question, which a living process sees at once."""
        if self._asked:
            return
        asker = Holder(self._presence.process, await self._cluster.new_producer_id() | KPROXY_BIT, 0)
        writer.begin(asker.producer_id, 0)
        value = encode_value(asker, os.urandom(BELL_BYTES))
        await writer.write(encode_key(self._id, question=True), value, self._now_ms())
        self._asked = True

    async def _answers(self, other: Process, look: Callable[[], Awaitable[None]]) -> bool:
        """Whether a process answers the question; False, too, when it ends or another has the name."""
        with trio.move_on_after(_PATIENCE_SECONDS):
            while True:
                await look()
                holder = self.holders.holder
                if holder is None or holder.process != other or holder.stopped:
                    return False
                if holder.answered == self._presence.process.process_id:
                    return True
                await trio.sleep(_LOOK_AGAIN_SECONDS)
        return False

    # -- while it runs

    def note(self, notes: Notes) -> None:
        """Keeps the note from expiring, and deletes a question of this process's own; called after ``claim``."""
        assert self._own is not None
        notes.keep(encode_key(self._id), encode_value(self._own))
        if self.holders.question is not None and self.holders.question == self._presence.process:
            notes.put(encode_key(self._id, question=True), None)
            self.holders.question = None

    async def watch(self, notes: Notes) -> None:
        """Finds other processes of this name, for ever. InstanceTaken when one has taken it; Refused."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer_calls, notes)
            backoff = Backoff(self._config)
            while True:
                try:
                    if await notes.wait():
                        await self._look(notes)
                except (OSError, RemoteProtocolError):
                    self._cluster.count_error("producer_state_log")
                    await backoff.pause()
                else:
                    backoff.reset()

    async def _answer_calls(self, notes: Notes) -> None:
        while True:
            await self._presence.called()
            with trio.move_on_after(_PATIENCE_SECONDS):
                try:
                    await self._look(notes)
                except (OSError, RemoteProtocolError):
                    self._cluster.count_error("producer_state_log")

    async def _look(self, notes: Notes) -> None:
        await notes.look()
        holder, question, own = self.holders.holder, self.holders.question, self._own
        if self._stopped or holder is None or own is None:
            return
        if self._ours(holder) is None:
            notes.keep(encode_key(self._id), encode_value(own))  # a copy is in its place
        elif holder.process != self._presence.process:
            raise self._lost(holder)
        if question is not None and question != self._presence.process:
            self.holders.question = None
            self._cluster.count_error(_KIND)
            self._warn(
                "another process was started with this instance.id: told it that this one is alive; give each process "
                "its own",
                question,
            )
            self._own = own._replace(answered=question.process_id)
            notes.keep(encode_key(self._id), encode_value(self._own))
            notes.put(encode_key(self._id, question=True), None)

    def _warn(self, event: str, other: Process) -> None:
        log.warning(
            event,
            instance_id=self._id,
            other_host=other.host,
            other_pid=other.pid,
            other_started=_time(other.started_ms),
        )

    def _lost(self, holder: Holder) -> InstanceTaken:
        self._cluster.count_error(_KIND)
        own, other = self._presence.process, holder.process
        log.error(
            "another process has taken over this instance.id; ending at once",
            instance_id=self._id,
            own_host=own.host,
            own_pid=own.pid,
            own_started=_time(own.started_ms),
            other_host=other.host,
            other_pid=other.pid,
            other_started=_time(other.started_ms),
            advice="give each process its own instance.id",
        )
        return InstanceTaken(
            f"lost instance.id = '{self._id}' to the process {other.pid} on host {other.host}, which began at "
            f"{_time(other.started_ms)}: give each process its own instance.id"
        )

    def stop(self) -> tuple[bytes, bytes] | None:
        """The last note: the next process need not ask. None if this one does not have the name, or has stopped."""
        if not self._held or self._stopped:
            return None
        assert self._own is not None
        self._stopped = True
        return encode_key(self._id), encode_value(self._own._replace(stopped=True))

    @property
    def stopped(self) -> bool:
        """Whether this process writes nothing any more."""
        return self._stopped

    def close(self) -> None:
        """Others see from now on that this process has ended."""
        self._presence.close()

    def _now_ms(self) -> int:
        return int(self._cluster.network.wall() * 1000)


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
