"""One client connection: reads bytes, makes one synchronous call into the session, writes the results.

Up to three tasks run for a connection: one reads the client, one the broker, one sends again what is indefinite.
"""

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

import structlog
import trio

from kproxy.budget import AT_ONCE_STEPS
from kproxy.codec.frame import FrameSplitter
from kproxy.config.model import ConnectionOptions
from kproxy.dedup.origin import Silence
from kproxy.errors import LocalProtocolError, RemoteProtocolError
from kproxy.net.client_time import ClientTime
from kproxy.net.connection_state import ConnectionEvent, ConnectionState, next_state
from kproxy.net.coordinator_calls import CoordinatorCalls
from kproxy.net.dispatch import Dispatch
from kproxy.net.intake import Finished, Intake, Unreachable
from kproxy.net.network import ByteIO
from kproxy.net.shared import READ_BYTES, Shared
from kproxy.net.upstream import LARGEST_FRAME, Upstream
from kproxy.proxy.client_login.policy import LARGEST_BEFORE_LOGIN
from kproxy.proxy.principals import ANONYMOUS
from kproxy.proxy.routing import Broker
from kproxy.proxy.senders import sender_of
from kproxy.proxy.session import Session

if TYPE_CHECKING:
    from kproxy.proxy.slots import Buffer

log = structlog.get_logger("kproxy.connection")

#: What makes an unfinished request the first to go when others wait for memory: its client has sent nothing for so
#: long, or is slower than this for so long, while kproxy waits for it.
_SILENT_SECONDS = 1.0
_SLOW_SECONDS = 5.0
_SLOW_BYTES_A_SECOND = 262_144
#: A client's kernel may take its time to acknowledge what it has (delayed ACK, up to 0.2 s), and networks theirs.
_SLOWEST_ACKNOWLEDGEMENT_SECONDS = 1.0
#: A wait that ends sooner was none: there was something to read before it began.
_AT_ONCE_SECONDS = 0.001


class Connection:
    """One client and the broker behind the port that it connected to."""

    def __init__(
        self,
        client: ByteIO,
        session: Session,
        shared: Shared,
        config: ConnectionOptions,
        choose: Callable[[], Broker | None],
    ) -> None:
        """``choose`` gives the broker to connect to."""
        self.wall = shared.wall
        #: The time by trio's clock, as ``trio.current_time``, which asks for the clock each time.
        self.now = trio.lowlevel.current_clock().current_time
        #: Its value when the unfinished request began: what this has grown by since is how long the client has taken.
        self._time, self._frame_from = ClientTime(), 0.0
        #: When requests were last seen to be open, as of ``check``.
        self._open_at = -inf
        self.read_at = self._emptied_at = trio.current_time()
        self.session = session
        session.read_all(self.read_at + self.wall)
        #: Whether something was there to read already when a long wait was over.
        self._left_over = False
        #: When the client connected (trio's clock, seconds), and the bytes of its requests since.
        self.opened_at, self.received = self.read_at, 0
        #: A time in which the client sent nothing while a request of it waited: what it sends next comes after that.
        self._quiet: Silence | None = None
        #: What is called once the requests at hand are taken.
        self._tell: Callable[[], None] | None = None
        #: Bytes of responses handed to the kernel (``kproxy.dedup.unconfirmed.Wire``).
        self.written = 0
        #: Bytes after these of which the kernel may have taken some.
        self.writing = 0
        self.cluster, self.keeper, self.stats, self.budget = shared.cluster, shared.keeper, shared.stats, shared.budget
        self.config = config
        self.client = client
        self._unfinished = shared.unfinished
        #: As whose bytes what has come of an unfinished request is counted; empty: none is.
        self._sender = ""
        self._buffer = shared.buffer
        largest = LARGEST_BEFORE_LOGIN if session.logs_in else LARGEST_FRAME
        self._splitter = FrameSplitter(min(config.max_frame_bytes, largest), config.request_max_bytes)
        #: Bytes of whole requests that the session has not taken yet, and of responses that the client has not.
        self.untaken = 0
        self._unwritten = 0
        #: Of the untaken bytes, those of the request at hand.
        self.at_hand = 0
        self.nursery: trio.Nursery | None = None
        self._progress = trio.lowlevel.ParkingLot()
        self.state = ConnectionState.SERVING
        #: In a drain: until when (trio's clock) the client's kernel may acknowledge the last response.
        self._leaves_at: float | None = None
        #: This end closed the connection when the client's kernel had all responses, and nothing was left to read: the
        #: client reads them before it sees the end.
        self._left_well = False
        #: In a drain: what says, when something was answered, whether it goes now.
        self.answered: Callable[[Connection], None] | None = None
        self.writing_client = False
        groups = None if shared.reading is None else shared.reading.groups
        self._coordinator_calls = CoordinatorCalls(shared.cluster, shared.transactions, groups, shared.repairs)
        self.dispatch = Dispatch(self, self._coordinator_calls, shared.reading)
        self.upstream = Upstream(self, shared, choose)
        self._intake = Intake(self, shared.lanes, shared.keeper, shared.logins)

    async def run(self) -> None:
        """Serves the client until one side ends, then makes the outcome of what is in flight definite."""
        try:
            async with trio.open_nursery() as nursery:
                self.nursery = nursery
                await self._read_client()
                nursery.cancel_scope.cancel()
        finally:
            self._close()

    def _close(self) -> None:
        self.happens(ConnectionEvent.ENDED)
        self.client.close()
        self.upstream.close()
        self.dispatch.close()
        self.budget.hold(self, 0)
        self.stats.clients.buffered_bytes = self.budget.used
        self._intake.close(trio.current_time() + self.wall)
        # The connection, its session and their callbacks refer to each other: without this the buffers would stay
        # in memory until the next full garbage collection, while the budget counts them as free.
        self._splitter.drop()
        self.session.drop()
        if self._sender:
            self._account_unfinished()

    # -- evidence of the responses that the client has received

    @property
    def node_id(self) -> int:
        return self.upstream.node_id

    def _received_all(self) -> bool:
        """Whether the client ended the connection in good order, after the last byte of the last response."""
        unsaid = self.session.to_client or self.writing_client
        return self.session.idle and not (unsaid or self.client.unacked()) and self.client.closed_well()

    def unacked(self) -> int:
        return self.client.unacked()

    def peer_closed(self) -> bool:
        return self.client.peer_closed()

    def arrived(self) -> int:
        return self.received + self.client.pending()

    def has_taken(self, position: int) -> bool:
        if self.budget.full:
            return True  # it may wait for memory that the one which asks holds
        if not (self.untaken or self.client.pending()):
            return True
        return self.received - self._splitter.held - self.untaken >= position

    def may_have_ended(self) -> bool:
        if self.closed_well():
            return True
        is_read_out = self.untaken <= self.at_hand and not (self._splitter.held or self.client.pending())
        return not (is_read_out or self.client.peer_closed())

    def tell_taken(self, changed: Callable[[], None]) -> None:
        self._tell = changed

    def _tell_taken(self) -> None:
        if self._tell is not None:
            tell, self._tell = self._tell, None
            tell()

    def closed_well(self) -> bool:
        return self._left_well or self.client.closed_well()

    # -- the client's side

    async def _read_client(self) -> None:
        peer = self.client.peer
        try:
            await self._serve()
        except RemoteProtocolError as error:
            self._count_refusal(error.refusal)
            client_id = self.session.client.client_id
            log.warning("request refused, connection closed", peer=peer, client_id=client_id, reason=str(error))
        except (OSError, trio.ClosedResourceError):
            pass
        except (LocalProtocolError, Finished) as error:
            log.debug("client connection closed", peer=self.client.peer, reason=str(error))
            if isinstance(error, Unreachable):
                self.client.resets_on_close()  # franz-go treats an end before the first response as a missing login
        finally:
            self._coordinator_calls.closed(self.session.client.connection, received_all=self._received_all())
        self._intake.end(trio.current_time() + self.wall)
        self.client.close()
        self._splitter.drop()  # others may wait for this memory
        self.untaken = 0
        self.account()
        self._progress.unpark_all()
        with trio.move_on_after(self.config.delivery_timeout_ms / 1000):
            await self._settle()

    async def _serve(self) -> None:
        while not self.state.is_draining or await self._may_read_on():
            if self.budget.full or (self._sender and self._unfinished.full(self._sender)):
                await self._admitted()
            room = self._splitter.room()
            count = self.client.receive_now([self._buffer] if room is None else [room, self._buffer])
            if count is None:
                room = None  # must not outlive its frame
                await self._listen()
                continue
            if count == 0:
                return
            self.read_at = self._emptied_at = self.now()
            self.stats.clients.bytes_in += count
            self.received += count
            if self._quiet is not None:
                self._note_quiet()
            frames = self._frames(count, room)
            await self._intake.take(frames)
            self.untaken = 0
            self._tell_taken()
            await self.flush()
            if self.state.has_to_end:
                raise Finished("the broker's connection ended")
            if count < READ_BYTES:
                await self._listen()  # there can't be more yet: asking would cost a call in vain
            elif self.client.should_yield():
                await trio.lowlevel.checkpoint()

    async def _admitted(self) -> None:
        """Waits until there is memory for more of the client's requests."""
        self._tell_taken()  # who waits until more is taken may hold that memory
        if self._sender:
            await self._unfinished.admit(self._sender, self)
        await self.budget.admit(self)

    async def _may_read_on(self) -> bool:
        """Whether another request may be read; in a drain only if it is to stay after all."""
        while self.state.is_draining:
            if self.session.idle:
                return False
            await self._progress.park()
        return self.state is ConnectionState.SERVING

    def happens(self, event: ConnectionEvent) -> None:
        self.state = next_state(self.state, event)
        if self.state.has_to_end:
            self._intake.give_up()

    def stay(self) -> None:
        """Takes back a drain."""
        if self.state.is_draining:
            self.happens(ConnectionEvent.STAYS)
            self._leaves_at = None
            self._progress.unpark_all()

    @property
    def owed(self) -> int:
        """Requests that were read and have no response; of those that are not taken yet one is counted."""
        return self.session.owed + bool(self.untaken)

    def drain(self) -> None:
        """Takes no further request, and ends the connection when all that were taken are answered."""
        self.happens(ConnectionEvent.DRAINS)
        unsaid = self.session.to_client or self.writing_client
        if self.listening and self.session.idle and not unsaid and self._may_leave():
            self.client.close()

    def _may_leave(self) -> bool:
        """Whether the client's kernel has all responses, or had the time to say so."""
        if not (self.client.closed or self.client.unacked() or self.client.pending()):
            self._left_well = True
            return True
        if self._leaves_at is None:
            self._leaves_at = self.now() + _SLOWEST_ACKNOWLEDGEMENT_SECONDS
        return self.now() >= self._leaves_at

    @property
    def listening(self) -> bool:
        """Whether it is for the client to send something."""
        return self._time.since is not None

    async def _listen(self) -> None:
        self._time.begin(self.now())
        await self.client.readable()
        now = self.now()
        # what is there at once may have come at any time since the last read took all there was
        waited = self._time.end(now) > _AT_ONCE_SECONDS and not self._left_over
        self._left_over = False
        self.session.read_all((now if waited else self._emptied_at) + self.wall)

    def look_while_busy(self) -> None:
        """Called every now and then: in a wait of whatever kind nothing is read."""
        if self.listening:
            return
        self.look_whether_empty()
        now = trio.current_time() + self.wall
        if self._left_over or self._splitter.held:
            self._quiet = None
        else:
            self._quiet = Silence(now if self._quiet is None else self._quiet.since, now)

    def look_between(self, now: float) -> None:
        """Called every now and then: which responses have arrived, and for how long the client has been silent."""
        since = self._time.since
        if not self.session.look_between(now + self.wall) or since is None or now - since < _SILENT_SECONDS:
            return
        if not (self._splitter.held or self.client.pending()):  # what is there may have come at any time
            self._quiet = None
            self.session.was_silent(Silence(since + self.wall, now + self.wall))

    def _note_quiet(self) -> None:
        quiet, self._quiet = self._quiet, None
        if quiet is not None and quiet.until - quiet.since >= _SILENT_SECONDS:
            self.session.was_silent(quiet)

    def look_whether_empty(self) -> None:
        """Note, in a long wait and after it, whether something is left: if not, what arrives now waited for less."""
        self._left_over = bool(self.client.pending())
        if not self._left_over:
            self._emptied_at = trio.current_time()

    def overdue(self, now: float) -> str | None:
        """The reason to end the connection: an idle one, or a frame that does not end. None if not."""
        config, stalled_at = self.config, self.client.stalled_at
        if stalled_at is not None and now > stalled_at + config.connections_max_idle_ms / 1000:
            return "idle"
        if stalled_at is not None and self.budget.full and now > stalled_at + config.frame_timeout_ms / 1000:
            return "slow_reader"  # what is kept for it is missing to others
        return self._late(now) if self.listening else None

    def _late(self, now: float) -> str | None:
        """The same where it is for the client to send."""
        config, taken_ms = self.config, self._time.seconds(now) * 1000
        if self.client.greets:
            allowed_ms = min(config.ssl_handshake_timeout_ms, config.connections_max_idle_ms)
            return "tls_handshake" if taken_ms > allowed_ms else None
        if self.session.awaits_login and taken_ms > config.frame_timeout_ms:
            return "unauthenticated"
        if self._splitter.held:
            return "slow_frame" if self._frame_age(now) > config.frame_timeout_ms / 1000 else None
        idle_since = now - config.connections_max_idle_ms / 1000
        return "idle" if self._open_at < idle_since and self._silent_since(idle_since) else None

    def _frame_age(self, now: float) -> float:
        """The seconds for which kproxy has waited for the rest of the unfinished request."""
        return self._time.seconds(now) - self._frame_from

    def _silent_since(self, moment: float) -> bool:
        """Whether since then the client could have sent something, or read a response, and has not."""
        since = self._time.since if self.listening else self.client.stalled_at
        return since is not None and since < moment and not (self.listening and self.client.pending())

    def check(self, now: float) -> None:
        """Ends what has lasted too long; called every now and then, since a timer for each wait costs more."""
        if not self.session.idle:
            self._open_at = now
        reason = self.overdue(now)
        if reason is not None and not self.client.closed:
            self._count_refusal(reason)
            self.client.close()
        self.upstream.check(now)

    def check_open(self, now: float) -> None:
        """Answers what is open for too long; called more often than ``check``."""
        self.session.time_out(now + self.wall)
        if self.session.to_client and not self.writing_client and self.nursery is not None:
            self.nursery.start_soon(self.flush_client)

    def _frames(self, count: int, room: memoryview | None) -> list[bytearray]:
        frames: list[bytearray] = []
        began = self._splitter.held
        if room is not None:
            direct = min(count, len(room))
            room.release()
            whole = self._splitter.filled(direct)
            if whole is not None:
                frames.append(whole)
            count -= direct
        if count:
            frames += self._splitter.feed(self._buffer[:count])
        if self._splitter.held and (frames or not began):
            self._frame_from = self._time.seconds(self.read_at)
        self.untaken = sum(map(len, frames))
        return frames

    @property
    def sender(self) -> str:
        """The owner of its unfinished requests: its principal or, where it has none, its address."""
        principal = self.session.client.principal
        return sender_of(self.client.peer_host) if principal == ANONYMOUS else principal

    def crowds_out(self, now: float) -> float | None:
        """The seconds for which kproxy has waited for the rest of a request whose client sends nothing, or little.

        None if its client does what it can.
        """
        if not self._splitter.held or self.client.closed:
            return None
        age = self._frame_age(now)
        slow = self.listening and age > _SLOW_SECONDS and self._splitter.held < age * _SLOW_BYTES_A_SECOND
        return age if slow or self._silent_since(now - _SILENT_SECONDS) else None

    def evict(self) -> int:
        """Ends the connection, since its unfinished request is in the way of others; the bytes that will be free."""
        self._count_refusal("evicted")
        self.client.close()
        return self._splitter.held

    def _account_unfinished(self) -> None:
        count = self._splitter.held
        sender = self.sender if count else self._sender
        if self._sender not in ("", sender):
            self._unfinished.hold(self._sender, self, 0)
        self._unfinished.hold(sender, self, count)
        self._sender = sender if count else ""

    def account(self) -> None:
        unfinished = self._splitter.held
        if self._sender or unfinished:
            self._account_unfinished()
        requests = self.session.held_bytes + unfinished + self.untaken
        answers = self.upstream.held + self._unwritten
        if self.writing_client:
            answers += sum(map(len, self.session.to_client))
        self.budget.hold(self, requests + answers)
        self.stats.clients.buffered_bytes = self.budget.used

    def carry_out(self, *, is_alone: bool = False) -> None:
        """Begins what the session has asked for; ``is_alone``: no other request came at the same time."""
        if self.nursery is not None:
            self.dispatch.run(self.nursery, is_alone=is_alone)

    def logged_in(self) -> None:
        """Takes longer requests from now on."""
        self._splitter.max_frame_bytes = min(self.config.max_frame_bytes, LARGEST_FRAME)

    # -- writing

    async def changed(self) -> None:
        """Act after each change that a response brought: write, wake waiting tasks, and resend what must be resent."""
        if self.session.commands:
            self.carry_out()
        self.upstream.push()
        if self.session.to_client:
            await self.flush_client()
        self._has_changed()

    def changed_now(self) -> None:
        """Act as ``changed``, where nothing can wait for a slow client: a task does."""
        if self.session.commands:
            self.carry_out()
        self.upstream.push()
        left = self._write_now() if self.session.to_client else None
        if left is not None and self.nursery is not None:
            self.nursery.start_soon(self._write_rest, left)
        self._has_changed()

    def _has_changed(self) -> None:
        self.account()
        if self._progress:
            self._progress.unpark_all()
        if self.answered is not None:
            self.answered(self)
        if self.state.is_draining:
            self.drain()
        if self.state.has_to_end and not self.session.to_client and not self.writing_client:
            self.client.close()

    def wake(self) -> None:
        """Something was written or answered: tasks that wait for it look again."""
        self._progress.unpark_all()

    def fenced(self, taken_at: float) -> None:
        """Another instance fenced the producer id, seen with a request of ``taken_at`` (seconds since the epoch).

        A client that has moved there has closed this connection.
        """
        if not self.client.peer_closed():
            self._intake.fenced(taken_at)

    def expire(self) -> None:
        """Ends the connection: nobody else will know soon that its producer id is in use."""
        if not self.client.closed:
            self._count_refusal("expired_producer_id")
            self.client.close()

    async def progressed(self) -> None:
        """Waits until a response came, something was written, or batches were sent again."""
        await self._progress.park()

    async def wait_quiet(self) -> None:
        """Waits until no batch is in flight."""
        while self.session.producer.in_flight:
            await self._progress.park()

    async def _settle(self) -> None:
        """Wait, after the client has gone, until the outcome of each of its batches is definite."""
        while self.session.producer.is_open and self.state is not ConnectionState.FORSAKEN:
            await self._progress.park()

    async def let_others_work(self) -> None:
        """Writes what is ready, and waits: of the connections with much to do one at a time continues."""
        await self._yield(AT_ONCE_STEPS)

    async def _yield(self, steps: int) -> None:
        await self.flush()
        await self.budget.turns.wait(steps)
        self.look_whether_empty()

    async def take_turn(self, steps: int) -> None:
        """Waits, before work of so many steps is done, until it is its turn."""
        if not self.budget.turns.fits(steps):
            await self._yield(steps)

    async def make_room(self, steps: int) -> None:
        """Waits, before messages are decoded in so many steps, for their turn (``take_turn``) and for memory."""
        await self.take_turn(steps)
        if self.budget.full:
            await self._admitted()

    async def flush(self) -> None:
        """Writes what is ready, in both directions."""
        self.account()  # before anything that may wait
        if self.upstream.write():
            await self.upstream.flush()
        if self.session.to_client:
            await self.flush_client()

    async def flush_client(self) -> None:
        """Writes the responses that are ready, in order."""
        left = self._write_now()
        if left is not None:
            await self._write_rest(left)

    def _write_now(self) -> int | None:
        """Writes what the kernel takes; None if that is all. Else the bytes written, and ``_write_rest`` is due."""
        out = self.session.to_client
        if self.client.closed:
            out.clear()
        if not out or self.writing_client:
            return None
        self.writing = self.session.position - self.written  # all of ``out``
        try:
            size = self.client.send_at_once(out)
        except (OSError, trio.ClosedResourceError):
            self.client.close()
            out.clear()
        else:
            if out:
                self.writing_client = True
                return size
            self._wrote(size)
        if self._progress:
            self._progress.unpark_all()
        return None

    async def _write_rest(self, begun: int) -> None:
        out = self.session.to_client
        try:
            while out:
                self._wrote(await self._write_slowly(out, begun))
                begun = 0
        except (OSError, trio.ClosedResourceError):
            self.client.close()
        finally:
            self.writing_client = False
            if self._progress:
                self._progress.unpark_all()  # the broker's reader waits for a slow client here

    async def _write_slowly(self, out: "list[Buffer]", begun: int) -> int:
        """Writes all of ``out``, of which ``begun`` bytes went before; the bytes written, with these."""
        batch = out[:]
        out.clear()
        self._unwritten = sum(map(len, batch))
        self.writing = begun + self._unwritten
        self.account()  # the client may never read it
        try:
            return begun + await self.client.send_all(batch)
        finally:
            self._unwritten = 0
            self.account()

    def _wrote(self, count: int) -> None:
        self.stats.clients.bytes_out += count
        self.written += count
        self.writing = 0

    def _count_refusal(self, reason: str) -> None:
        self.session.refused(reason, trio.current_time() + self.wall)
