"""Sends batches without a definite response again, one by one and in order, until the outcome of each is known.

Where sending again could write a second copy, the partition's leader is fenced first and its log looked through.
"""

from typing import TYPE_CHECKING

import structlog

from kproxy.codec._generated.produce import ProduceResponsePartitionProduceResponse
from kproxy.codec.error_codes import NO_TOPIC
from kproxy.codec.messages import ErrorCode
from kproxy.dedup.lanes import Send, Track
from kproxy.dedup.produce_outcome import ProduceOutcome
from kproxy.dedup.resend import Fence, Resend, next_step
from kproxy.errors import LocalProtocolError, RemoteProtocolError
from kproxy.net.broker_log import Batch, BrokerLog, LogError
from kproxy.net.brokers.backoff import Backoff
from kproxy.net.brokers.pool import Pool
from kproxy.net.single_batch import send_batch
from kproxy.proxy.commands import Unsettled

if TYPE_CHECKING:
    from kproxy.net.connection import Connection

log = structlog.get_logger("kproxy.resend")

#: A broker that just started may not know a topic yet; after so many responses it is believed.
_UNKNOWN_TOPIC_PATIENCE = 10
_GONE = NO_TOPIC | {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION}


async def resend_all(connection: "Connection", batches: Unsettled) -> None:
    """Makes the outcome of all these batches of a connection definite; answers them as they become so.

    LocalProtocolError if that is not for this connection to do any more: then it has to end.
    """
    await connection.wait_quiet()
    # for these batches alone: one that hangs must not hold up others, nor kproxy's own requests
    pool = connection.cluster.new_pool(connection.session.client.principal)
    broker_log = connection.keeper.broker_log
    try:
        again = True
        while again:
            for track in batches.unsettled():
                await _TrackResend(connection, batches, track, pool, broker_log).run()
            again = batches.requeue()
    except LocalProtocolError:
        batches.abandon()
        raise
    finally:
        pool.close()
    batches.recovered(connection.cluster.network.wall())


class _TrackResend:
    def __init__(
        self, connection: "Connection", batches: Unsettled, track: Track, pool: Pool, broker_log: BrokerLog
    ) -> None:
        self._connection = connection
        self._batches = batches
        self._pool = pool
        self._broker_log = broker_log
        self._cluster = connection.cluster
        self._track = track
        self._by_id = batches.by_id
        self._backoff = Backoff(connection.config)
        self._unknown = 0

    async def run(self) -> None:
        epoch = self._track.epoch
        while (step := next_step(self._track, self._cluster.network.wall())) is not None:
            if isinstance(step, Fence):
                await self._fence(step)
            else:
                await self._resend(step)
            self._connection.stats.produce.epoch_bumps += self._track.epoch - epoch
            epoch = self._track.epoch
            self._batches.progressed(self._cluster.network.wall())
            await self._connection.flush_client()
        self._connection.stats.produce.epoch_bumps += self._track.epoch - epoch

    async def _resend(self, step: Resend) -> None:
        if step.wait:
            await self._backoff.pause()
        resends = self._connection.stats.produce.resends
        resends[step.reason] = resends.get(step.reason, 0) + 1
        await self._attempt(step.send)

    async def _fence(self, step: Fence) -> None:
        """Fences the producer off from its next epoch, and finds what it wrote before. Tried again if it fails."""
        track, place = self._track, await self._place()
        if place is None:
            return
        try:
            await self._broker_log.fence([place], [(track.producer_id, track.epoch + 1)])
        except OSError:
            await self._backoff.pause()
        except RemoteProtocolError as error:
            if isinstance(error, LogError) and error.error_code in _GONE:
                self._give_up(error.error_code)
            else:
                log.warning("a producer cannot be fenced", reason=str(error))
                await self._backoff.pause()
        else:
            log.info("producer fenced", reason=step.reason, topic=place[0], partition=place[1], epoch=track.epoch + 1)
            track.fenced(await self._found(place), self._cluster.network.wall())

    async def _place(self) -> tuple[str, int] | None:
        try:
            place = await self._broker_log.place_of(self._track.key, by_id=self._by_id)
        except (OSError, RemoteProtocolError):
            await self._backoff.pause()
            return None
        if place is None:
            self._unknown += 1
            await self._backoff.pause()
            if self._unknown >= _UNKNOWN_TOPIC_PATIENCE:
                self._give_up(ErrorCode.UNKNOWN_TOPIC_ID)
            return None
        return place

    def _give_up(self, error_code: int) -> None:
        copies = self._track.give_up(error_code)
        if copies:
            self._batches.left_unfenced(self._track, copies, self._cluster.network.wall())

    async def _found(self, place: tuple[str, int]) -> dict[tuple[int, int], int]:
        """The track's batches in the log; what can't be read counts as missing: no record may be lost for it."""
        try:
            batches = await self._tail(place, self._track.written_to - 1)
            if not self._track.shows_its_log([batch.header for batch in batches]):
                batches = await self._tail(place, 0)
        except (OSError, RemoteProtocolError) as error:
            log.warning("log cannot be read; batches may be written twice", reason=str(error))
            failed = self._connection.stats.retries.readbacks_failed
            failed["unreadable"] = failed.get("unreadable", 0) + 1
            return {}
        headers = [batch.header for batch in batches]
        return {(header.producer_epoch, header.base_sequence): header.base_offset for header in headers}

    async def _tail(self, place: tuple[str, int], floor: int) -> list[Batch]:
        """The track's last batches from an offset on."""
        return (await self._broker_log.tails([place], {self._track.producer_id}, floors={place: floor}))[place]

    async def _attempt(self, send: Send) -> None:
        try:
            broker, error = await self._cluster.metadata.leader_now(*self._track.key, self._by_id)
        except (OSError, RemoteProtocolError):
            broker, error = None, 0
        if broker is None:
            self._no_leader(send, error)
            return
        self._unknown = 0
        before, timeout_ms = send.attempts, self._batches.longest_timeout_ms
        try:
            async with self._pool.to(broker.address) as client:
                send.attempts += 1
                row = await send_batch(client, self._track.key, send.batch, timeout_ms, by_id=self._by_id)
        except (OSError, RemoteProtocolError):
            self._cluster.count_error("resend")
            if send.attempts == before:
                self._no_leader(send, 0)
            else:
                self._track.lost(send)
            return
        self._take(send, row)
        if send.settled and not self._connection.upstream.is_to(broker):
            self._batches.led_elsewhere(self._track.key)

    def _no_leader(self, send: Send, error: int) -> None:
        self._unknown = self._unknown + 1 if error in _GONE else 0
        if self._unknown >= _UNKNOWN_TOPIC_PATIENCE:
            send.outcome, send.error_code = ProduceOutcome.REFUSED, error
        elif send.outcome in (None, ProduceOutcome.FENCED):
            send.outcome = ProduceOutcome.NOT_NOW

    def _take(self, send: Send, row: ProduceResponsePartitionProduceResponse | None) -> None:
        if row is None:
            self._track.lost(send)
        else:
            self._track.answered(send, row.error_code, row.base_offset, row.log_append_time_ms)
