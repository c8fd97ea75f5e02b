"""Produce (0), all versions: stamping, the order of batches in flight, and the responses.

A request becomes a call: one upstream request, stamped in place, where the versions on both sides agree; or several new
ones, where a message set of magic 0 or 1 was converted. A call is answered when the outcome of each of its batches is
known.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from kproxy.codec.produce_layout import FIRST_TOPIC_ID, ProduceLayout, walk_response
from kproxy.dedup.lanes import Lane, Send, Track, TrackKey
from kproxy.dedup.produce_outcome import ProduceOutcome
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.conversion import Converted
from kproxy.proxy.produce_batches import MAGIC_AT, check_batch
from kproxy.proxy.produce_calls import PartitionCall, ProduceCall, UpstreamProduce, build_request
from kproxy.proxy.refusals import Refusals
from kproxy.proxy.retries import Batch, Retries

#: Produce requests from here on hold batches of format v2 alone.
FIRST_V2 = 3
_NOTHING: Mapping[TrackKey, int] = {}
_LONGEST_TIMEOUT_MS = 600_000
#: KIP-951: from here on a broker names other brokers' addresses beside an error.
_FIRST_NODE_ENDPOINTS = 10


class Producer:
    """The produce side of one session, under one lane."""

    def __init__(
        self,
        max_in_flight: int,
        count_converted: Callable[[str, int, int, int], None],
        written: Callable[[Sequence[Send]], None] = lambda _: None,
    ) -> None:
        """``max_in_flight``: batches of a partition.

        ``count_converted(direction, magic, batches, records)`` is called for each conversion, ``written`` with the
        batches that successes have given offsets.
        """
        self.lane: Lane | None = None
        self._max_in_flight = max_in_flight
        self._count = count_converted
        self._note_written = written
        self._waiting: deque[UpstreamProduce] = deque()
        self.refusals = Refusals()
        #: The calls with open batches, oldest first.
        self.calls: deque[ProduceCall] = deque()
        self._finished: list[ProduceCall] = []
        self.in_flight = 0
        self._by_id: bool | None = None

    @property
    def waits(self) -> bool:
        """Whether a call is not yet sent in full."""
        return bool(self._waiting)

    @property
    def is_open(self) -> bool:
        """Whether a call has a batch without an outcome."""
        return bool(self.calls)

    @property
    def sends_topic_ids(self) -> bool:
        """Whether what is in flight names topics by id (Produce v13 and later)."""
        return any(call.upstream_version >= FIRST_TOPIC_ID for call in self.calls)

    @property
    def oldest(self) -> float | None:
        """When the oldest request came that has an open batch, in seconds; None if there is none."""
        return min((call.slot.since for call in self.calls), default=None)

    @property
    def longest_timeout_ms(self) -> int:
        """The longest time that a request in flight allows the broker."""
        return min(max((call.timeout_ms for call in self.calls), default=0), _LONGEST_TIMEOUT_MS)

    # -- towards the broker

    def accept(
        self,
        call: ProduceCall,
        frame: bytearray,
        layout: ProduceLayout,
        converted: Converted | None = None,
        retries: Retries | None = None,
        refused: Mapping[TrackKey, int] = _NOTHING,
    ) -> None:
        """Takes a request; ``ready`` then gives what to send of it. ``converted``: one of an old format.

        ``retries`` takes out what the client had sent before; ``refused``: the errors of what is not to be sent.

        RemoteProtocolError if the client changes between names and ids of topics: two tracks of one partition would
        use the same sequences.
        """
        self._note_naming(call)
        if converted is not None:
            groups = self._converted(call, frame, layout, converted, retries, refused)
        else:
            groups = self._as_it_is(call, frame, layout, retries, refused)
        for group in groups:
            call.open += len(group.batches)
            self._waiting.append(group)
        if call.owed is not None:
            call.owed.sends = groups[0].sends if len(groups) == 1 else []
        self.calls.append(call)
        if not call.open:
            self._finish(call)

    def accept_whole(
        self, call: ProduceCall, frame: bytearray, layout: ProduceLayout, counts: list[int]
    ) -> UpstreamProduce | None:
        """Takes and stamps a request that may go upstream now as it stands; None, and nothing is done, if it may not.

        ``counts``: the records of each batch. All of it is new, and nothing of it is refused.
        """
        lane, limit = self.lane, self._max_in_flight
        if lane is None or self._waiting or call.version != call.upstream_version:
            return None
        tracks: list[Track] = []
        for key, _, _ in layout.partitions:
            track = lane.track(key)
            if not track.has_room(limit):
                return None
            tracks.append(track)
        if len(set(tracks)) < len(tracks):
            return None
        self._note_naming(call)
        if layout.acks != -1:
            frame[layout.acks_at : layout.acks_at + 2] = b"\xff\xff"
        view, since, sends = memoryview(frame), call.slot.since, []
        for track, records, (_, start, end) in zip(tracks, counts, layout.partitions, strict=True):
            sends.append(track.accept(view[start:end], records, since))
        call.whole, call.open = sends, len(sends)
        if call.owed is not None:
            call.owed.sends = sends
        self.in_flight += len(sends)
        self.calls.append(call)
        return UpstreamProduce(call, [], frame, sends)

    def _note_naming(self, call: ProduceCall) -> None:
        by_id = call.upstream_version >= FIRST_TOPIC_ID
        if self._by_id not in (None, by_id):
            raise RemoteProtocolError("topics by name and by id on one connection")
        self._by_id = by_id

    def _as_it_is(
        self,
        call: ProduceCall,
        frame: bytearray,
        layout: ProduceLayout,
        retries: Retries | None,
        refused: Mapping[TrackKey, int],
    ) -> list[UpstreamProduce]:
        view = memoryview(frame)
        numbered: list[tuple[int, Batch]] = []
        for number, place in enumerate(layout.partitions):
            part = PartitionCall(*place.key)
            call.parts.append(part)
            error = refused.get(place.key, 0) if refused else 0
            if not error:
                error, records = check_batch(frame, place)
            if error:
                part.error_code = error
            else:
                numbered.append((number, (part, view[place.start : place.end], records)))
        batches = [batch for _, batch in numbered]
        whole = len(batches) == len(call.parts)
        if retries is not None:
            batches = [left for number, batch in numbered for left in retries.strip(batch, number)]
            whole &= len(batches) == len(call.parts) and not any(part.matched for part in call.parts)
        groups = _grouped(call, batches)
        if whole and len(groups) == 1 and call.version == call.upstream_version:
            groups[0].frame = frame
            if layout.acks != -1:
                frame[layout.acks_at : layout.acks_at + 2] = b"\xff\xff"
        return groups

    def _converted(
        self,
        call: ProduceCall,
        frame: bytearray,
        layout: ProduceLayout,
        converted: Converted,
        retries: Retries | None,
        refused: Mapping[TrackKey, int],
    ) -> list[UpstreamProduce]:
        batches: list[Batch] = []
        following = 0
        for place, made in zip(layout.partitions, converted.parts, strict=True):
            first, following = following, following + (0 if isinstance(made, int) else len(made))
            part = PartitionCall(*place.key)
            call.parts.append(part)
            part.error_code = refused.get(place.key, 0)
            if not part.error_code and isinstance(made, int):
                part.error_code = made
            if part.error_code or isinstance(made, int):
                continue
            magic = frame[place.start + MAGIC_AT] if made else 0
            whole = [(part, memoryview(batch.data), batch.record_count) for batch in made]
            if retries is None:
                batches += whole
            else:
                arrival_ms = None if magic else converted.arrival_ms
                for number, batch in enumerate(whole, first):
                    batches += retries.strip(batch, number, arrival_ms)
            self._count("up", magic, len(made), sum(batch.record_count for batch in made))
        return _grouped(call, batches)

    def ready(self) -> list[tuple[UpstreamProduce, bytearray | bytes]]:
        """The requests that may go upstream now, stamped, in order."""
        out: list[tuple[UpstreamProduce, bytearray | bytes]] = []
        assert self.lane is not None
        while self._waiting:
            group = self._waiting[0]
            tracks = []
            for part, _, _ in group.batches:
                track = self.lane.track((part.topic, part.index))
                if not track.has_room(self._max_in_flight):
                    return out
                tracks.append(track)
            self._waiting.popleft()
            self._stamp(group, tracks)
            out.append((group, group.frame if group.frame is not None else build_request(group.call, group.sends)))
        return out

    def _stamp(self, group: UpstreamProduce, tracks: list[Track]) -> None:
        for track, (part, batch, records) in zip(tracks, group.batches, strict=True):
            send = track.accept(batch, records, group.call.slot.since)
            part.sends.append(send)
            group.sends.append(send)
        self.in_flight += len(tracks)
        owed = group.call.owed
        if owed is not None and owed.sends is not group.sends:
            owed.sends = (*owed.sends, *group.sends)

    def note_unsent(self, call: ProduceCall) -> None:
        """Marks the parts of a call that wait to be sent, for its response has to be given at once."""
        for group in self._waiting:
            if group.call is call:
                for part, _, _ in group.batches:
                    part.unsent = True

    # -- from the broker

    def answered(self, group: UpstreamProduce, frame: bytearray) -> bool:
        """Takes the response to a group (prefix included). True if something must be sent again.

        RemoteProtocolError if it is malformed.
        """
        call, version = group.call, group.call.upstream_version
        clean, refused = True, False
        written: list[Send] = []
        results = walk_response(frame, version)
        for send in group.sends:
            track = send.track
            result = results.get(track.key)
            if result is None:
                track.lost(send)
                clean = False
            elif track.answered(send, *result):
                call.open -= 1
                if send.base_offset >= 0:
                    written.append(send)
                    send.noted = True
            elif self._settled_refusal(send):
                call.open -= 1
                refused = True
            else:
                clean = False
        if written:
            self._note_written(written)
        self.in_flight -= len(group.sends)
        names_brokers = refused and version >= _FIRST_NODE_ENDPOINTS  # it may: then it is built, not relayed
        if clean and not names_brokers and group.frame is not None and call.version == version:
            call.raw = frame
        if not call.open:
            self._finish(call)
        return not clean

    def _settled_refusal(self, send: Send) -> bool:
        """Settles a refusal at once where nothing else is held on its track and no copy may be in flight."""
        if send.outcome is not ProduceOutcome.REFUSED or len(send.track.sends) > 1 or send.ever_open:
            return False
        send.track.refuse(send, send.error_code)
        if self.lane is not None:
            self.lane.forget_unused(send.track)
        return True

    def lost(self, group: UpstreamProduce) -> None:
        """Notes that the connection ended before the response to a group."""
        for send in group.sends:
            if not send.settled:
                send.track.lost(send)
        self.in_flight -= len(group.sends)

    def recount(self) -> None:
        """Finds the calls that became finished while batches were sent again."""
        waiting: Counter[ProduceCall] = Counter()
        for group in self._waiting:
            waiting[group.call] += len(group.batches)
        for call in list(self.calls):
            sends = [send for part in call.parts for send in part.sends]
            written = [send for send in sends if send.base_offset >= 0 and not send.noted]
            self._note_written(written)
            for send in written:
                send.noted = True
            call.open = waiting[call] + sum(not send.settled for send in sends)
            if not call.open:
                self._finish(call)

    def _finish(self, call: ProduceCall) -> None:
        self.calls.remove(call)
        self._finished.append(call)

    def drop(self) -> None:
        """Frees the batches that wait to be sent, and those whose outcome nobody waits for any more."""
        self._waiting.clear()
        self.calls.clear()
        self._finished.clear()

    def finished(self) -> list[ProduceCall]:
        """The calls of which each batch has got a definite outcome since this was last asked."""
        done, self._finished = self._finished, []
        return done


def _grouped(call: ProduceCall, batches: list[Batch]) -> list[UpstreamProduce]:
    """Upstream requests for batches: a broker would take but one of a partition's batches out of each."""
    if len(batches) == 1:
        return [UpstreamProduce(call, batches)]
    groups: list[UpstreamProduce] = []
    seen: Counter[TrackKey] = Counter()
    for batch in batches:
        key = (batch[0].topic, batch[0].index)
        if seen[key] == len(groups):
            groups.append(UpstreamProduce(call, []))
        groups[seen[key]].batches.append(batch)
        seen[key] += 1
    return groups
