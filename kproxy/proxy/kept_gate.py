"""Decides on each connection whose producer ids come, and which batches are sent when."""

from collections.abc import Mapping, Sequence
from typing import Final

from kproxy.codec.produce_layout import ProduceLayout
from kproxy.dedup.kept.clients import KeptClients
from kproxy.dedup.kept.ids import is_given, successor
from kproxy.dedup.kept.producers import Arrival, Flow, KeptPartition
from kproxy.dedup.kept.steps import LEFT_OUT, OLD_EPOCH, SEND_AGAIN, KeptBatch, Told
from kproxy.dedup.lanes import TrackKey
from kproxy.proxy.context import Context
from kproxy.proxy.kept_calls import KeptCall, KeptPart, restamp
from kproxy.proxy.kept_stats import KeptStats
from kproxy.proxy.produce_batches import producer_ids, read_batch_head

_ERRORS: Final = {Arrival.LATE: int(LEFT_OUT), Arrival.EARLY: int(SEND_AGAIN), Arrival.OLD: int(OLD_EPOCH)}
#: Ids of one connection that are known to be its client's.
_MOST_OWN: Final = 16


def owner_of(ctx: Context, clients: KeptClients) -> bytes:
    """Return the owner of the producer ids that this connection's client is given."""
    return clients.owner(*ctx.holder)


class KeptGate:
    """The batches of one connection whose numbers are kept: which are its client's, and which have to wait."""

    def __init__(self, ctx: Context, clients: KeptClients, stats: KeptStats) -> None:
        """``clients`` and ``stats`` are the process's."""
        self._ctx = ctx
        self._clients = clients
        self._stats = stats
        self._own: set[int] = set()
        self._flow = None if clients.may_move else Flow()
        #: The requests of this connection whose batches may be the first that a broker knows of a producer, or which it
        #: may have forgotten.
        self._first: dict[KeptPartition, KeptCall] = {}
        #: Those that the request at hand waits for.
        self._awaited: list[tuple[KeptPartition, KeptCall]] = []

    @property
    def is_waiting(self) -> bool:
        """Whether the request at hand must not overtake another one."""
        return bool(self._awaited) and any(_must_precede(partition, call) for partition, call in self._awaited)

    def waits_for_first(self, frame: bytearray, layout: ProduceLayout) -> bool:
        """Whether a request has to wait: of two that a broker meets first, it would take either."""
        self._awaited.clear()
        if not self._first:
            return False
        self._first = {one: call for one, call in self._first.items() if _must_precede(one, call)}
        if self._first:
            producers = self._clients.producers
            for place, producer_id in producer_ids(frame, layout):
                partition = producers.known(producer_id, place.key)
                if partition is not None and partition in self._first:
                    self._awaited.append((partition, self._first[partition]))
        return bool(self._awaited)

    def awaits_owner(self, frame: bytearray, layout: ProduceLayout) -> bool:
        """Whether a request has an id of which it is not known yet to whom it was given."""
        return self._clients.awaits_secret and self.is_numbered(frame, layout)

    def is_numbered(self, frame: bytearray, layout: ProduceLayout) -> bool:
        """Whether a request has an id that kproxy gave to a client."""
        return any(is_given(one) for _, one in producer_ids(frame, layout))

    def holds(self, frame: bytearray, layout: ProduceLayout) -> bool | None:
        """Whether all batches of a request have an id that was given to its client; None: one is another's."""
        given = 0
        if not self._clients.has_room:
            return False
        for _, producer_id in producer_ids(frame, layout):
            if producer_id in self._own:
                given += 1
            elif is_given(producer_id):
                if not self._is_own(producer_id):
                    return None
                given += 1
        return given == len(layout.partitions) > 0

    def _is_own(self, producer_id: int) -> bool:
        ids = self._clients.ids
        if ids is None or not ids.belongs(producer_id, owner_of(self._ctx, self._clients)):
            return False
        if len(self._own) == _MOST_OWN:
            self._own.clear()
        self._own.add(producer_id)
        return True

    def take(
        self, frame: bytearray, layout: ProduceLayout, version: int
    ) -> tuple[KeptCall, Mapping[TrackKey, int]] | None:
        """Takes a request whose ids are its client's; None: relay it.

        Returns also the errors of batches that are refused: of those that their client had left out, since others
        follow them in the log already, and of those that come too early. Then the others are sent one by one, as where
        a broker has an error about their numbers; also if some may be in the log: a broker that has forgotten their
        producer would write them again, and so does any under an epoch that their client has raised.
        """
        batches = _numbered(frame, layout)
        if batches is None:
            return None
        flow, nth = self._flow, 0
        if flow is not None:
            flow.requests = nth = flow.requests + 1
        is_apart, partition_of = False, self._clients.producers.partition
        partitions = []
        for place, (producer_id, epoch, sequence, _) in zip(layout.partitions, batches, strict=True):
            partition = partition_of(producer_id, place.key)
            is_apart = is_apart or partition.is_repeated(epoch, sequence) or partition.may_be_older(epoch)
            partitions.append(partition)
        connection = self._ctx.client.connection
        call = KeptCall(frame, [], version, layout.timeout_ms, connection, is_apart=is_apart, flow=flow, nth=nth)
        refused = self._arrive(call, layout, batches, partitions)
        if is_apart or refused:
            self._stats.left_out += list(refused.values()).count(Arrival.LATE)
            call.wrong = [(part, Told(SEND_AGAIN)) for part in call.parts]
            if not call.parts:
                call.finish()
            return call, {key: _ERRORS[arrival] for key, arrival in refused.items()}
        for part in call.parts:
            if part.partition.generation:
                restamp(call, part, successor(part.batch.producer_id, part.partition.generation))
        return call, {}

    def _arrive(
        self,
        call: KeptCall,
        layout: ProduceLayout,
        batches: Sequence[tuple[int, int, int, int]],
        partitions: Sequence[KeptPartition],
    ) -> dict[TrackKey, Arrival]:
        """Records that the batches of a request have come, and notes those that are sent; those that are not."""
        refused: dict[TrackKey, Arrival] = {}
        for place, batch, partition in zip(layout.partitions, batches, partitions, strict=True):
            _, epoch, sequence, _ = batch
            arrival = partition.sends(epoch, sequence, call.connection)
            if arrival is not Arrival.SENT:
                refused[place.key] = arrival
                continue
            numbered = KeptBatch(*batch, partition.arrivals)
            call.parts.append(KeptPart(place.key, numbered, partition, place.start, place.end))
            if _must_precede(partition, call):
                self._first[partition] = call
        return refused


def _numbered(frame: bytearray, layout: ProduceLayout) -> list[tuple[int, int, int, int]] | None:
    """Producer id, epoch, first sequence and number of records of each batch; None: one is malformed or has none."""
    batches = []
    for place in layout.partitions:
        error, records, _, producer_id, epoch, sequence = read_batch_head(frame, place)
        if error or sequence < 0 or epoch < 0:
            return None
        batches.append((producer_id, epoch, sequence, records))
    return batches


def _must_precede(partition: KeptPartition, call: KeptCall) -> bool:
    """Whether what follows a request on a partition has to wait for it."""
    return not call.done and (call.is_apart or partition.told < 0)
