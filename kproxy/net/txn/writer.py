"""Writes the data of one transaction: batches go to the leaders, and again, until the outcome of each is known."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Final

import trio

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.codec.produce_frames import ProduceRequests
from kproxy.codec.produce_layout import FIRST_TOPIC_ID, PartitionRef, Results, walk_response
from kproxy.codec.topic_partition import TopicPartition
from kproxy.dedup.produce_outcome import ProduceOutcome, outcome_of
from kproxy.dedup.resend import OLD_S
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.broker_client import CLIENT_ID
from kproxy.net.brokers.pipelined_client import PipelinedClient
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.proxy.routing import Broker
from kproxy.txn.procedures.outside import PLAIN, WriteTerms
from kproxy.txn.writes import GIVEN_UP, Batch, PartitionWrites, Timing, TxnSend, Writes

_OLDEST_PRODUCE: Final = 3
#: So much is worth a request of its own at any time.
_ENOUGH_BYTES: Final = 65_536
#: Of other tasks, before what was handed over is sent.
_MOST_TURNS: Final = 100
#: Of a batch to which the broker's response says nothing: error code, base offset, log append time.
_NO_RESULT: Final = (ErrorCode.NETWORK_EXCEPTION, -1, -1)


class TransactionWriter:
    """Takes the batches of one (producer id, epoch); one writer at a time uses the connections of an id.

    Requests are pipelined, and batches for partitions with one leader go as one request. A broker handles the requests
    of a connection one by one, and each has to wait for the replicas. So small batches for partitions other than those
    in flight wait for the response that is due, and are then sent together: sent singly, each would wait for all before
    it.
    """

    def __init__(self, connections: WriterConnections, producer_id: int, epoch: int, terms: WriteTerms = PLAIN) -> None:
        """``producer_id`` as in the batches: with kproxy's bits set if the ``terms`` are PLAIN."""
        config = connections.config
        timing = Timing(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000, OLD_S)
        self._connections = connections
        self._now = trio.lowlevel.current_clock().current_time
        self._metadata = connections.cluster.metadata
        in_flight = config.max_in_flight_per_partition
        self._writes = Writes(producer_id, epoch, timing, in_flight, is_marked=terms.is_marked)
        self._line, self._newest = terms.line, terms.newest_produce
        #: The ids of the topics that it writes, by name, if brokers have any: a topic that is deleted and recreated
        #: during the transaction is another one, and its brokers refuse the old id.
        self._topic_ids: dict[str, bytes | None] = {}
        self._most_bytes = config.connection_buffer_bytes
        self._timeout_ms = config.upstream_request_timeout_ms
        self._requests = ProduceRequests(CLIENT_ID, terms.transactional_id, self._timeout_ms)
        #: Tasks that wait for any outcome, and what is called with one batch's: each response settles few batches.
        self._settled = trio.lowlevel.ParkingLot()
        self._outcomes: dict[TxnSend, list[Callable[[], None]]] = {}
        #: It is to send at the end of this turn of the event loop.
        self._is_due = False
        #: For so many turns more it waits for calls that are about to hand over batches.
        self._patience = _MOST_TURNS
        #: Waits for the end of a back-off.
        self._backing_off: trio.CancelScope | None = None
        self._learning = False
        #: A topic that was deleted and recreated meanwhile: the transaction has failed.
        self.recreated: str | None = None
        #: The process's count of batches in flight.
        self._counted = 0
        self._connecting: set[int] = set()
        #: Requests of this writer that are in flight, by connection.
        self._used: dict[PipelinedClient, int] = {}

    # -- what its owner asks

    def accept(self, batches: Iterable[Batch]) -> list[TxnSend]:
        """Stamps batches in place and sends them after all accepted before; at most one for each partition.

        If the transaction has failed, they are refused at once. RemoteProtocolError: one is not whole, and none was
        accepted; LocalProtocolError: a partition is named twice.
        """
        sends = self._writes.accept(batches)
        stats = self._connections.stats
        stats.batches_stamped += len(sends)
        stats.records_stamped += sum(send.records for send in sends)
        self._changed()
        return sends

    async def room(self, size: int) -> None:
        """Waits until ``size`` more bytes may be held, at most ``connection.buffer.bytes``; more than that go alone."""
        while not self.has_room(size):
            await self._settled.park()

    def has_room(self, size: int) -> bool:
        """Whether ``room`` would not wait."""
        return not self._writes.held_bytes or self._writes.held_bytes + size <= self._most_bytes

    async def settled(self, sends: Sequence[TxnSend]) -> None:
        """Waits until the outcome of each is definite; they carry it."""
        done = trio.Event()
        self.when_settled(sends, done.set)
        if not done.is_set():
            await done.wait()

    def when_settled(self, sends: Sequence[TxnSend], done: Callable[[], None]) -> None:
        """Calls ``done`` once the outcome of each is definite: now, if it is. It must not raise."""
        left = [send for send in sends if not send.settled]
        if len(left) > 1:
            done = _at_last(len(left), done)
        for send in left:
            self._outcomes.setdefault(send, []).append(done)
        if not left:
            done()

    async def flush(self) -> None:
        """Waits until the outcomes of all that was accepted are definite."""
        while self._writes.busy:
            await self._settled.park()

    @property
    def failed(self) -> int | None:
        """Kafka's error code if the transaction can only be aborted."""
        return self._writes.failed

    def written(self) -> Mapping[TopicPartition, PartitionWrites]:
        """The content of a decision to commit. LocalProtocolError while an outcome is open, or if it has failed."""
        return self._writes.summary()

    def abandon(self, error_code: int = GIVEN_UP) -> None:
        """Gives up: the transaction is aborted. What is not settled gets ``error_code``."""
        self._writes.abandon(error_code)
        self._changed()

    # -- sending

    def _send_due(self) -> None:
        """Sends what may be sent now, unless calls are about to hand over more that goes in the same requests."""
        self._is_due = False
        if self._line and self._patience:
            self._patience -= 1
            self._send_soon()
            return
        self._patience = 0  # until there is nothing whose outcome is not definite
        while self._send_round(self._now()):
            pass
        self._tell()
        due = self._writes.next_due()
        if due < inf:
            self._send_at(due)

    def _send_soon(self) -> None:
        """Sends at the end of the turn: what other tasks hand over in it goes in the same requests."""
        if not self._is_due:
            self._is_due = True
            self._connections.turn.call(self._send_due)

    def _send_at(self, due: float) -> None:
        if self._backing_off is not None:
            self._backing_off.deadline = min(self._backing_off.deadline, due)
            return
        self._backing_off = trio.CancelScope(deadline=due)
        self._connections.nursery.start_soon(self._back_off, self._backing_off)

    async def _back_off(self, until: trio.CancelScope) -> None:
        with until:
            await trio.sleep_forever()
        self._backing_off = None
        if self._writes.busy:
            self._send_soon()

    def _send_round(self, now: float) -> bool:
        """Sends at most one batch for each partition; whether there may be more to send at once."""
        unknown: list[TxnSend] = []
        groups: dict[int, tuple[Broker, list[TxnSend]]] = {}
        for send in self._writes.ready(now):
            broker = self._metadata.leader(send.place)
            if broker is None:
                unknown.append(send)
            else:
                groups.setdefault(broker.node_id, (broker, []))[1].append(send)
        if unknown and not self._learning:
            self._learning = True
            self._connections.nursery.start_soon(self._learn, unknown)
        more = False
        for broker, sends in groups.values():
            client = self._connections.client(broker)
            if client is not None:
                more |= client.has_room and self._is_time(client, sends) and self._send(client, sends, now)
            elif broker.node_id not in self._connecting:
                self._connecting.add(broker.node_id)
                self._connections.nursery.start_soon(self._connect, broker, sends)
        return more

    async def _learn(self, sends: Sequence[TxnSend]) -> None:
        try:
            errors = await self._metadata.learn([send.place for send in sends])
        except (OSError, RemoteProtocolError):
            self._count_error()
            errors = dict.fromkeys((send.place for send in sends), int(ErrorCode.LEADER_NOT_AVAILABLE))
        self._learning = False
        for send in sends:
            if send.place in errors:
                self._take(send, errors[send.place])
        for topic in {send.place[0] for send in sends}:
            known = self._topic_ids.setdefault(topic, self._metadata.topic_id(topic))
            if known not in (None, self._metadata.topic_id(topic)):
                self.recreated = topic
                self._writes.abandon()
        self._changed()

    async def _connect(self, broker: Broker, sends: Sequence[TxnSend]) -> None:
        try:
            await self._connections.connect(broker)
        except (OSError, RemoteProtocolError):
            self._unsent(sends)
        self._connecting.discard(broker.node_id)
        self._changed()

    def _send(self, client: PipelinedClient, sends: Sequence[TxnSend], now: float) -> bool:
        """Sends one request with as many of these as it may hold; whether others may follow it at once."""
        group = self._fitting(sends)
        oldest, newest = client.versions.get(ApiKey.PRODUCE, (0, 0))
        version = min(newest, self._newest)
        if version >= FIRST_TOPIC_ID and not all(self._topic_id(send) for send in group):
            version = FIRST_TOPIC_ID - 1
        try:
            if version < max(oldest, _OLDEST_PRODUCE):
                raise RemoteProtocolError(f"the broker serves Produce {oldest} to {newest}")
            named = self._named(group, by_id=version >= FIRST_TOPIC_ID)
            done = partial(self._answered, client, named)
            client.send(self._writer_of(named), version, walk_response, done, extra_ms=self._timeout_ms)
        except (OSError, RemoteProtocolError):
            self._unsent(group)
            return False
        self._used[client] = self._used.get(client, 0) + 1
        resends, more = self._connections.stats.resends, len(group) < len(sends)
        for send in group:
            if send.attempts:
                resends[send.reason] = resends.get(send.reason, 0) + 1
            self._writes.started(send, now)
            more = more or self._writes.is_followed(send)
        return more

    def _topic_id(self, send: TxnSend) -> bytes | None:
        name = send.place[0]
        if name not in self._topic_ids:
            self._topic_ids[name] = self._metadata.topic_id(name)
        return self._topic_ids[name]

    def _named(self, sends: Sequence[TxnSend], *, by_id: bool) -> Sequence[tuple[PartitionRef, TxnSend]]:
        """Batches with their partitions as a request names them."""
        if by_id:
            return [((self._topic_id(send) or b"", send.place[1]), send) for send in sends]
        return [((send.place[0].encode(), send.place[1]), send) for send in sends]

    def _writer_of(self, named: Sequence[tuple[PartitionRef, TxnSend]]) -> Callable[[int, int], bytes]:
        return lambda version, correlation_id: self._requests.frame(
            version, correlation_id, [(place, send.batch) for place, send in named]
        )

    def _is_time(self, client: PipelinedClient, sends: Sequence[TxnSend]) -> bool:
        """Whether to send now, and not to gather until the next response."""
        if client not in self._used or any(self._writes.follows(send) for send in sends):
            return True
        return sum(len(send.batch) for send in sends) >= _ENOUGH_BYTES

    def _fitting(self, sends: Sequence[TxnSend]) -> Sequence[TxnSend]:
        if len(sends) == 1:
            return sends
        size = 0
        group: list[TxnSend] = []
        for send in sends:
            size += len(send.batch)
            if group and size > self._most_bytes:
                break
            group.append(send)
        return group

    def _unsent(self, sends: Iterable[TxnSend]) -> None:
        self._count_error()
        for send in sends:
            self._take(send, ErrorCode.LEADER_NOT_AVAILABLE)

    # -- what became of it

    def _answered(
        self, client: PipelinedClient, named: Sequence[tuple[PartitionRef, TxnSend]], results: Results | None
    ) -> None:
        self._used[client] -= 1
        if not self._used[client]:
            del self._used[client]
        if results is None:
            self._count_error()
            results = {}
        for place, send in named:
            error_code, *rest = results.get(place, _NO_RESULT)
            if error_code == ErrorCode.UNKNOWN_TOPIC_ID:
                error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # the owner named the topic
            self._take(send, error_code, *rest)
        self._changed()

    def _take(self, send: TxnSend, error_code: int, base_offset: int = -1, log_append_time_ms: int = -1) -> None:
        """Notes what is known of an attempt, or why there was none."""
        outcome = outcome_of(error_code)
        if outcome is ProduceOutcome.WRITTEN:
            self._writes.written(send, base_offset, log_append_time_ms)
            return
        now = self._now()
        self._metadata.forget(send.place)
        if outcome is ProduceOutcome.OUT_OF_SEQUENCE:
            self._writes.out_of_sequence(send)
        elif outcome in (ProduceOutcome.REFUSED, ProduceOutcome.SUPERSEDED):
            self._writes.refused(send, error_code, now)
        else:
            self._writes.again(send, now, is_open=outcome is ProduceOutcome.OPEN, error_code=error_code)

    def _changed(self) -> None:
        self._tell()
        if self._writes.busy:
            self._send_soon()
            return
        self._patience = _MOST_TURNS
        if self._backing_off is not None:
            self._backing_off.cancel()

    def _tell(self) -> None:
        """Wakes the tasks whose outcome is definite. A transaction that has failed sends nothing more."""
        more = self._writes.held - self._counted
        if not more and self._writes.failed is None:
            return
        self._connections.stats.sends_in_flight += more
        self._counted += more
        if self._writes.failed is not None:
            for client in self._used:
                self._connections.drop(client)
        if more < 0:
            for send in [send for send in self._outcomes if send.settled]:
                for done in self._outcomes.pop(send):
                    done()
            self._settled.unpark_all()

    def _count_error(self) -> None:
        self._connections.cluster.count_error("transaction_writer")


def _at_last(times: int, done: Callable[[], None]) -> Callable[[], None]:
    """Calls ``done`` when it has been called so often."""

    def count() -> None:
        nonlocal times
        times -= 1
        if not times:
            done()

    return count
