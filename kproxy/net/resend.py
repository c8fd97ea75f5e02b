"""Sends again, batch by batch and in order, what got no definite answer, until each fate is known."""

from typing import TYPE_CHECKING

import structlog
import trio

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.codec.produce import FIRST_TOPIC_ID
from kproxy.dedup.fate import Fate
from kproxy.dedup.lanes import Send, Track
from kproxy.dedup.resend import Resend, next_step
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_client import BrokerClient
from kproxy.proxy.routing import Address, Broker

if TYPE_CHECKING:
    from kproxy.net.connection import Connection

log = structlog.get_logger("kproxy.resend")

_BY_NAME = 8
#: A broker that just started may not know a topic yet; after so many answers it is believed.
_UNKNOWN_TOPIC_PATIENCE = 10
_GONE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)


async def resend_all(connection: "Connection") -> None:
    """Makes the fate of all unsettled batches of a connection definite; answers them as they become so."""
    await connection.wait_quiet()
    clients = _OwnClients(connection)
    try:
        again = True
        while again:
            for track in connection.session.gate.unsettled():
                await _TrackResend(connection, track, clients).run()
            again = connection.session.gate.requeue()
    finally:
        clients.close()
    connection.session.gate.recovered()


class _OwnClients:
    """Connections for these batches alone: one that hangs must not hold up others, nor kproxy's own requests."""

    def __init__(self, connection: "Connection") -> None:
        self._config = connection.config
        self._network = connection.cluster.network
        self._clients: dict[Address, BrokerClient] = {}

    async def get(self, address: Address) -> BrokerClient:
        known = self._clients.get(address)
        if known is None or known.closed:
            known = await BrokerClient.open(
                self._network,
                address,
                self._config.upstream_connect_timeout_ms,
                self._config.upstream_request_timeout_ms,
            )
            self._clients[address] = known
        return known

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


class _TrackResend:
    def __init__(self, connection: "Connection", track: Track, clients: _OwnClients) -> None:
        self._connection = connection
        self._clients = clients
        self._cluster = connection.cluster
        self._track = track
        self._by_id = connection.session.gate.producer.sends_topic_ids
        self._backoff_ms = connection.config.retry_backoff_ms
        self._unknown = 0

    async def run(self) -> None:
        epoch = self._track.epoch
        while (step := next_step(self._track)) is not None:
            if step.wait:
                await self._pause()
            self._count(step, self._track.epoch - epoch)
            epoch = self._track.epoch
            await self._attempt(step.send)
            self._connection.session.gate.progressed()
            await self._connection.flush_client()
        self._connection.stats.epoch_bumps += self._track.epoch - epoch

    async def _pause(self) -> None:
        await trio.sleep(self._backoff_ms / 1000)
        self._backoff_ms = min(self._backoff_ms * 2, self._connection.config.retry_backoff_max_ms)

    def _count(self, step: Resend, bumps: int) -> None:
        stats = self._connection.stats
        stats.resends[step.reason] = stats.resends.get(step.reason, 0) + 1
        stats.epoch_bumps += bumps

    async def _attempt(self, send: Send) -> None:
        try:
            broker, error = await self._cluster.leader(*self._track.key, self._by_id)
        except (OSError, RemoteProtocolError):
            broker, error = None, 0
        if broker is None:
            self._no_leader(send, error)
            return
        self._unknown = 0
        send.attempts += 1
        try:
            response = await self._ask(broker, send)
        except (OSError, RemoteProtocolError):
            self._cluster.count_error("resend")
            self._track.lost(send)
            return
        self._take(send, response)
        if send.settled and not self._connection.is_connected_to(broker):
            self._connection.session.gate.producer.moved.add(self._track.key)

    def _no_leader(self, send: Send, error: int) -> None:
        self._unknown = self._unknown + 1 if error in _GONE else 0
        if self._unknown >= _UNKNOWN_TOPIC_PATIENCE:
            send.fate, send.error_code = Fate.REFUSED, error
        elif send.fate is None:
            send.fate = Fate.NOT_NOW

    async def _ask(self, broker: Broker, send: Send) -> ProduceResponse:
        ref, index = self._track.key
        topic = ProduceRequestTopicProduceData(
            partition_data=[ProduceRequestPartitionProduceData(index=index, records=send.batch)]
        )
        if self._by_id:
            topic.topic_id = ref
        else:
            topic.name = ref.decode("utf-8", "replace")
        timeout_ms = self._connection.session.gate.producer.longest_timeout_ms
        client = await self._clients.get(broker.address)
        newest = client.versions.get(ApiKey.PRODUCE, (0, 0))[1]
        version = FIRST_TOPIC_ID if self._by_id else min(_BY_NAME, newest)
        request = ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[topic])
        response = await client.call(request, version, extra_ms=timeout_ms)
        assert isinstance(response, ProduceResponse)
        return response

    def _take(self, send: Send, response: ProduceResponse) -> None:
        for topic in response.responses:
            for row in topic.partition_responses:
                self._track.answered(send, row.error_code, row.base_offset, row.log_append_time_ms)
                return
        self._track.lost(send)
