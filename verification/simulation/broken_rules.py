"""Replacements of kproxy's rules, to see what happens without them."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Final
from unittest.mock import patch

import trio

from kproxy.codec.batch import RawRecord, build_batch, iter_raw_records, iter_records, read_header
from kproxy.dedup import resend as resend_core
from kproxy.dedup.batch_records import BatchRecords, read_batch
from kproxy.dedup.digest import Digest, Digests
from kproxy.dedup.identity import Identity
from kproxy.dedup.lane_record import LaneRecord
from kproxy.dedup.lanes import Lane, LanePool, Track, TrackKey
from kproxy.dedup.listed import InDoubt
from kproxy.dedup.matching import RecordInBatch
from kproxy.dedup.produce_outcome import ProduceOutcome
from kproxy.dedup.producer_connection import ProducerConnection
from kproxy.dedup.quick_check import QuickCheck
from kproxy.dedup.refused import Refused
from kproxy.dedup.retry_ledger import Prerequisite, RetryLedger
from kproxy.dedup.retry_rules import Rules
from kproxy.dedup.unconfirmed import PendingProduce, UnconfirmedBatch
from kproxy.net.broker_log import BrokerLog
from kproxy.net.broker_log_tail import Tail
from kproxy.net.fleet import Fleet
from kproxy.net.intake import Intake
from kproxy.net.lane_leases import Lanes
from kproxy.proxy.commands import Procedure
from kproxy.proxy.produce_batches import new_batches
from kproxy.proxy.produce_calls import PartitionCall, ProduceCall
from kproxy.proxy.produce_gate import ProduceGate
from kproxy.proxy.producing import FIRST_V2
from kproxy.proxy.retries import Retries

_CLEARS: Final = QuickCheck.clears
_MOVE: Final = Retries._move
_REST: Final = Retries._rest
_READ_BATCH: Final = read_batch
_LANES: Final = Fleet.lanes
_PREREQUISITE: Final = RetryLedger.prerequisite
_NOTE_WRITTEN: Final = ProducerConnection._note_written
_PRODUCE: Final = ProduceGate._produce
_END: Final = Intake.end
_BATCH_HEADER: Final = 61
_LIMIT: Final = 1 << 20


def no(*_: Any, **__: Any) -> bool:
    """Any question of a rule."""
    return False


def yes(*_: Any, **__: Any) -> bool:
    """Any question of a rule."""
    return True


def for_ever(*_: Any) -> float:
    """A time until which a rule holds."""
    return inf


def same_rules(rules: Rules, _: Identity) -> Rules:
    """All clients are alike."""
    return rules


def zero(*_: Any, **__: Any) -> int:
    """A count that a rule demands."""
    return 0


def clears_by_time(check: QuickCheck, *args: Any) -> bool:
    """The timestamps in the header decide alone."""
    return _CLEARS(replace(check, at_any_time=frozenset(), untimed=frozenset()), *args)


async def nothing(*_: Any, **__: Any) -> None:
    """Not done, though it is waited for."""


def keep_nothing(*_: Any, **__: Any) -> None:
    """Not done."""


def only_late(_: Rules, answer: PendingProduce) -> bool:
    """Assumes that the client read a success beside an error."""
    return answer.at > answer.due


def any_time(_: Rules, entry: UnconfirmedBatch, ours: Digest, theirs: Digest, now: float) -> bool:
    """Timestamps are not looked at."""
    return True


def follows_when_refused(self: Refused, before: Refused | None) -> Refused:
    """``Refused.following``, by the time at which the request was refused."""
    if before is None or before.retry.ended or not before.crossed_by(self.since):
        return self
    return self.overtaking(before)


def has_equal(self: Refused, records: Sequence[Digest], empty_at: float) -> bool:
    """Only the content of a refused request is compared."""
    return any(record.content == (self.before or self).records[0].content for record in records)


def everybody_ends(
    self: RetryLedger, member: ProducerConnection, answer: PendingProduce, now: float
) -> Prerequisite | None:
    """Other connections of a producer count as ended."""
    for other in list(self.members.values())[:-1]:
        other.end(now)
    return _PREREQUISITE(self, member, answer, now)


def newer_only(self: RetryLedger, member: ProducerConnection, key: TrackKey) -> bool:
    """An older connection that is used again does not count as one that came after."""
    use = self._uses.get(key)
    return use is not None and use.newest > member.since


def note_all(self: ProducerConnection, now: float) -> None:
    """A request that was answered in time may be retried on its connection, as one that was answered too late."""
    for answer in self._asked:
        answer.failed = answer.failed or bool(answer.position)
    _NOTE_WRITTEN(self, now)


def base(offsets: list[int], *, whole: bool) -> int:
    """The offset of the first record, whatever follows."""
    return offsets[0]


def has_room(self: Track, limit: int) -> bool:
    """A new producer id is treated as any other."""
    return len(self.sends) < limit


def wait_for_nothing(self: Tail, _: int) -> None:
    """A tail ends where the log could be read to."""
    self.may_wait, self._window = False, None


def bump(track: Track, now: float) -> resend_core.Step:
    """Sends everything again under a new epoch where the broker knows nothing of the producer."""
    head = track.sends[0] if track.sends else None
    if head is None or head.outcome is not ProduceOutcome.OUT_OF_SEQUENCE:
        return resend_core.next_step(track, now)
    track.bump()
    head.outcome = None
    return resend_core.Resend(head, "state_lost", wait=True)


async def wait_for_requests(self: BrokerLog, *_: Any, **__: Any) -> None:
    """A fence only gives old requests the time to arrive."""
    await trio.sleep(self._config.upstream_request_timeout_ms / 1000)


def hand_on(self: LanePool, lane: Lane) -> None:
    """A lane keeps its epoch and its sequences."""
    self.leased -= 1
    self._free.append(lane)


def without_rest(self: Lanes, lane: Lane) -> None:
    """A lane may be had by anybody at once."""
    del self._leases[lane]
    self._count()
    self._pool.give_back(lane)


def notes_as_given_back(self: Intake, now: float) -> None:
    """A lane is noted as given back when its connection ends, whatever becomes of its batches."""
    _END(self, now)
    lanes, lane = self._lanes, self._lane
    if lane is not None:
        lanes.log.put(lanes._record(lane, lanes._leases[lane], returned=True))


def held_lanes(self: Fleet, identity: Identity) -> list[LaneRecord]:
    """Ignores lanes that others gave back."""
    return [lane for lane in _LANES(self, identity) if not lane.returned]


def no_lists(*_: Any) -> dict[str, InDoubt]:
    """Nobody lists what is in doubt."""
    return {}


def nobody(*_: Any) -> list[Any]:
    """Finds nothing."""
    return []


def pass_over(self: Retries, part: PartitionCall, matched: list[tuple[RecordInBatch, Digest]]) -> None:
    """Entries older than one that is repeated are in doubt no more."""
    newest = max((entry.serial for (entry, _), _ in matched), default=-1)
    _MOVE(self, part, matched)
    ledger = self._member.ledger
    for entry in list(ledger.entries.get((part.topic, part.index), ())):
        if entry.serial < newest:
            ledger.forget(entry)


def rest_with(**changed: Any) -> Callable[..., tuple[PartitionCall, memoryview, int]]:
    """Loses a field of the records that are left of a batch without its retries."""

    def rest(self: Retries, part: PartitionCall, data: memoryview, new: list[RawRecord]) -> Any:
        records = iter_records(build_batch(new), max_decompressed_bytes=_LIMIT)
        batch = build_batch([record._replace(**changed) for record in records])
        return _REST(self, part, data, list(iter_raw_records(read_header(batch), batch, _LIMIT)))

    return rest


def bytes_of_batch(batch: Any, **how: Any) -> BatchRecords:
    """Records are known by the bytes of their batch."""
    found = _READ_BATCH(batch, **how)
    body = bytes(batch[_BATCH_HEADER:])
    contents = [hashlib.blake2b(b"%b %d" % (body, at), digest_size=16).digest() for at in range(len(found))]
    found.digests = Digests(b"".join(contents), found.digests.times)
    return found


def look_at_all(
    self: ProduceGate, slot: Any, frame: bytearray, layout: Any, upstream: int, converted: Any
) -> Procedure | None:
    """A request that wants no response is compared with what is in doubt, as others are."""
    is_old = slot.api_version < FIRST_V2 and converted is None
    if layout.acks or is_old or self.member is None or self.producer.lane is None:
        return _PRODUCE(self, slot, frame, layout, upstream, converted)
    slot.silent = True
    return _compared(self, self.member, slot, frame, layout, upstream, converted)


def _compared(
    self: ProduceGate,
    member: ProducerConnection,
    slot: Any,
    frame: bytearray,
    layout: Any,
    upstream: int,
    converted: Any,
) -> Procedure:
    accept, counts = self._accept, new_batches(frame, layout)

    def accept_unowed(member: Any, call: Any, *rest: Any, **more: Any) -> None:
        call.owed = call.slot.owed = None
        accept(member, call, *rest, **more)

    owed = PendingProduce(layout.partitions, inf)
    call = ProduceCall(slot, slot.api_version, upstream, layout.timeout_ms, None)
    with patch.object(self, "_accept", accept_unowed):
        yield from self._when_compared(member, call, owed, frame, layout, counts, converted)
