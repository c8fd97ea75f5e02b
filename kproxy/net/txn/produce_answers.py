"""Produce requests whose batches go into transactions, from their parts to the coordinator and back to a response."""

from collections.abc import Awaitable, Callable, Mapping, Sequence, Sized
from functools import partial
from typing import Final

import trio

from kproxy.codec.batch import stored_crc
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import FIRST_TOPIC_ID, TopicRef
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.jobs import Jobs
from kproxy.net.txn.topic_names import topic_names
from kproxy.proxy.coordinator_requests import (
    CoordinatorAnswer,
    ImplicitProduce,
    Produced,
    ProducePart,
    TransactionalProduce,
)
from kproxy.proxy.implicit_produce import implicit_response
from kproxy.proxy.routing import is_own_topic
from kproxy.proxy.transaction_messages import produced
from kproxy.txn.procedures.captured import Captured, write_captured
from kproxy.txn.requests import ClientBatch, Written
from kproxy.txn.txn_error import TxnError

#: From this version on partitions join a transaction by being written (KIP-890, transaction.version 2).
_IMPLICIT: Final = 12


class ProduceAnswers:
    """Answers transactional clients, and clients that know nothing of their transaction."""

    def __init__(self, coordinator: Coordinator, jobs: Jobs, cluster: Cluster) -> None:
        """``jobs`` write the batches of clients that know nothing of transactions, also if these leave."""
        self._coordinator = coordinator
        self._jobs = jobs
        self._cluster = cluster

    def take_at_once(
        self, ask: TransactionalProduce | ImplicitProduce, version: int, answered: Callable[[CoordinatorAnswer], None]
    ) -> bool:
        """Takes a request whose batches can have their place in the order now; else nothing is done, and it is False.

        ``answered`` is called with the response; it must not raise. Nothing waits for it: that would be half of what a
        batch costs.
        """
        names = self._known_names(ask.parts, version)
        if names is None:
            return False
        batches: list[ClientBatch] = []
        for part in ask.parts:
            name = names[part.topic]
            if part.error_code or not part.records or is_own_topic(name):
                return False
            batches.append(_client_batch(part, name))
        if isinstance(ask, ImplicitProduce):
            return _capture_at_once(ask, batches, version, answered)
        who = ask.who
        if not self._coordinator.takes_at_once(who.transactional_id, batches):
            return False
        try:
            self._coordinator.produce_at_once(
                who, batches, lambda rows: answered(produced(ask.parts, rows, version)), implicit=version >= _IMPLICIT
            )
        except TxnError:
            return False  # the owner may have to read the log first
        return True

    async def answer(self, ask: TransactionalProduce, version: int, accepted: Callable[[], None]) -> Produced | None:
        """The response; None if its connection has to end, being older than its client's newest.

        ``accepted`` is called when the next request may begin.
        """
        parts = ask.parts
        try:
            names = await self._names(parts, version)
            parts = [_named(part, names) for part in parts]
            batches = [_client_batch(part, names[part.topic]) for part in parts if not part.error_code]
            implicit = version >= _IMPLICIT
            produce = self._coordinator.produce
            written = await produce(ask.who, batches, implicit=implicit, accepted=accepted) if batches else ()
        except TxnError as error:
            if error.error_code == ErrorCode.NETWORK_EXCEPTION:
                return None
            written = _refused([part for part in parts if not part.error_code], error)
        return produced(parts, written, version)

    # -- of clients that know nothing of transactions

    def capture(
        self, ask: ImplicitProduce, version: int, before: trio.Event, accepted: trio.Event
    ) -> Callable[[], Awaitable[Produced]]:
        """Begins to write what was captured: this continues when its client disconnects. The result has the response.

        It waits for ``before``, and sets ``accepted`` when the next request may begin.
        """
        result = self._jobs.start(partial(self._write_captured, ask, version, before, accepted))

        async def answer() -> Produced:
            try:
                return await result()
            except TxnError as error:
                taken = [part for part in ask.parts if part.records and not part.error_code]
                return implicit_response(ask.parts, _refused(taken, error), version)

        return answer

    async def _write_captured(
        self, ask: ImplicitProduce, version: int, before: trio.Event, accepted: trio.Event
    ) -> Produced:
        parts: list[ProducePart] = []

        async def read() -> Captured:
            names = await self._names(ask.parts, version)
            parts[:] = [_named(part, names) for part in ask.parts]
            batches = [_client_batch(part, names[part.topic]) for part in parts if part.records and not part.error_code]
            return Captured(batches, any(part.error_code for part in parts))

        written = await write_captured(ask.capture, ask.connection, ask.arrival_ms, read, before, accepted)
        return implicit_response(parts, written, version)

    # -- topics

    def _known_names(self, parts: Sequence[ProducePart], version: int) -> Mapping[TopicRef, str] | None:
        """The names of the topics (``_names``), if no broker has to be asked."""
        refs = [part.topic for part in parts]
        if version < FIRST_TOPIC_ID:
            return {ref: ref.decode() for ref in refs}
        return self._cluster.metadata.known_names(refs)

    async def _names(self, parts: Sequence[ProducePart], version: int) -> Mapping[TopicRef, str]:
        """The names of the topics that exist, as the request refers to them. TxnError."""
        known = self._known_names(parts, version)
        return known if known is not None else await topic_names(self._cluster, [part.topic for part in parts])


def _capture_at_once(
    ask: ImplicitProduce, batches: Sequence[ClientBatch], version: int, answered: Callable[[CoordinatorAnswer], None]
) -> bool:
    capture = ask.capture

    def written(rows: Sequence[Written]) -> None:
        capture.done()
        answered(implicit_response(ask.parts, rows, version))

    if not capture.takes_at_once(batches):
        return False
    capture.came(ask.connection, batches, ask.arrival_ms)
    try:
        capture.write_at_once(batches, written)
    except TxnError as error:
        capture.failed(str(error))
        written(_refused(batches, error))
    return True


def _client_batch(part: ProducePart, topic: str) -> ClientBatch:
    return ClientBatch(topic, part.partition, part.batch, part.records, part.base_sequence, stored_crc(part.batch))


def _refused(taken: Sized, error: TxnError) -> list[Written]:
    """The results of so many batches, none of which was written."""
    return [Written(error.error_code, -1, -1)] * len(taken)


def _named(part: ProducePart, names: Mapping[TopicRef, str]) -> ProducePart:
    """A part, or its refusal: the topic is unknown or kproxy's own, which only its name tells."""
    name = names.get(part.topic)
    if part.error_code or (name is not None and not is_own_topic(name)):
        return part
    error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return part._replace(error_code=error)
