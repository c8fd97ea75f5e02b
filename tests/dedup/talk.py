"""Connections of producers, their ledger and the log under a test's control: no sockets, no trio, no clock."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kproxy.codec.batch import Record, build_batch, read_header
from kproxy.codec.produce_layout import PartitionData
from kproxy.dedup.digest import Digests
from kproxy.dedup.identity import Identity
from kproxy.dedup.lanes import Lane, Send, TrackKey
from kproxy.dedup.origin import NO_SILENCE, Origin, Software
from kproxy.dedup.producer_connection import Suspect
from kproxy.dedup.quick_check import QuickCheck
from kproxy.dedup.refused import Refused
from kproxy.dedup.retry_ledger import FoundBatch, Prerequisite, ReadBack, Recover, SeeEnd
from kproxy.dedup.retry_rules import Rules
from kproxy.dedup.unconfirmed import PendingProduce
from kproxy.proxy.produce_calls import PartitionCall
from kproxy.proxy.retries import Retries, digests_at
from kproxy.proxy.retry_stats import RetryStats
from tests.dedup.readings import Batches
from tests.dedup.wires import ONE, RULES, FakeWire, Ledgers

if TYPE_CHECKING:
    from kproxy.dedup.listed import InDoubt

KEY: TrackKey = (b"t", 0)
OTHER: TrackKey = (b"t", 1)
ANSWER_BYTES = 10
LIMIT = 1 << 20


def batch_of(text: str, time: int = 7) -> bytes:
    """A batch with a record for each letter."""
    return bytes(build_batch([Record(at, time, None, letter.encode(), ()) for at, letter in enumerate(text)]))


@dataclass
class Log:
    """One partition: what was written, batch by batch, as it was stamped."""

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    end: int = 0

    def append(self, batch: bytes) -> int:
        """The offset that a batch was written at."""
        offset = self.end
        self.batches.append((offset, batch))
        self.end += read_header(batch).record_count
        return offset

    def read(self) -> list[tuple[bytes, list[int]]]:
        """Batches, and the offsets of their records."""
        return [(batch, list(range(at, at + read_header(batch).record_count))) for at, batch in self.batches]


class World:
    """A ledger, its clock and the logs; changes are counted."""

    def __init__(self, rules: Rules = RULES, former: Sequence[Suspect] = ()) -> None:
        #: The lanes of other instances.
        self.elsewhere: list[Suspect] = []
        self.now = 1000.0
        self.changes = 0
        self.logs: dict[TrackKey, Log] = {}
        #: Producer ids of these, and of such as are left alone.
        self.recent: set[int] = set()
        #: What other processes list as in doubt, by instance.
        self.lists: dict[str, InDoubt] = {}
        #: So many batches at the end of each log are the last ones of their producer ids.
        self.last = 1000
        self.ledgers = Ledgers(
            rules,
            lambda _: former,
            self._changed,
            lambda _: self.elsewhere,
            lambda _: self.recent,
            lambda _: self.lists,
        )
        self._producer_id = 100

    def _changed(self) -> None:
        self.changes += 1

    def log(self, key: TrackKey = KEY) -> Log:
        """The log of a partition."""
        return self.logs.setdefault(key, Log())

    def text(self, key: TrackKey = KEY) -> str:
        """The values in a log."""
        digests = (digests_at(batch, LIMIT)[0] for batch, _ in self.log(key).read())
        letters = {digests_at(batch_of(chr(n)), LIMIT)[0][0].content: chr(n) for n in range(ord("a"), ord("z") + 1)}
        return "".join(letters[content] for batch in digests for content in batch.contents())

    def connect(self, identity: Identity = ONE, *, clean_window: float = 0.0, software: str = "") -> "Talk":
        """A new connection of a producer, with a lane of its own."""
        self._producer_id += 1
        return Talk(self, identity, Lane(self._producer_id), Origin(Software(software, ""), clean_window))

    def clear(self, talk: "Talk", prerequisite: Prerequisite) -> None:
        """Does what the shell does of what hinders a request; not of one that has to wait for another."""
        if isinstance(prerequisite, SeeEnd):
            self.now = prerequisite.until
        elif isinstance(prerequisite, ReadBack):
            for entry in prerequisite.entries:
                for batch, offsets in self.log(entry.key).read():
                    header = read_header(batch)
                    if (header.producer_id, header.base_sequence) == (entry.stamp.producer_id, entry.stamp.sequence):
                        entry.recall(digests_at(batch, LIMIT)[0], offsets)
        elif isinstance(prerequisite, Recover):
            found = [
                FoundBatch(key, read_header(batch), digests_at(batch, LIMIT)[0], offsets, is_last=at >= -self.last)
                for key in prerequisite.keys
                for batches in [self.log(key).read()]
                for at, (batch, offsets) in enumerate(batches, -len(batches))
            ]
            talk.member.ledger.recovered(prerequisite, found, self.now)


class Talk:
    """One connection. ``ask`` is what comes of the client; ``write``, ``tell`` what comes of it."""

    def __init__(self, world: World, identity: Identity, lane: Lane, origin: Origin) -> None:
        self.world = world
        self.wire = FakeWire(written=0)
        self.lane = lane
        world.now += 0.001
        self.member = world.ledgers.enter(identity, self.wire, world.now, origin)
        self.position = 0
        self.silence = NO_SILENCE
        #: When nothing of what it sends next was there yet.
        self.empty_at = 0.0
        self.parts: dict[PendingProduce, list[PartitionCall]] = {}
        self._batches: dict[Send, bytes] = {}

    def ask(self, *batches: str, keys: Sequence[TrackKey] = (KEY,), time: int = 7, due: float = 1e9) -> PendingProduce:
        """A request with these batches, one after the other on each partition; it must not have to wait."""
        frame = bytearray(b"".join(batch_of(text, time) for text in batches))
        answer = PendingProduce([PartitionData(key, 0, len(frame)) for key in keys], due, self.world.now)
        ledger = self.member.ledger
        calm = self.is_cleared(answer, frame) or ledger.is_calm(self.member, answer)
        while not calm and (prerequisite := self.prerequisite(answer)) is not None:
            assert isinstance(prerequisite, ReadBack | Recover | SeeEnd), prerequisite
            self.world.clear(self, prerequisite)
        retries, reading = None, Batches(LIMIT)
        if not calm and ledger.concern(self.member, answer, frame, self.world.now):
            retries = Retries(self.member, answer, self.world.now, reading, RetryStats())
        sends: list[Send] = []
        self.parts[answer] = [PartitionCall(*key) for key in keys]
        left = [
            (part, memoryview(bytearray(batch_of(text, time))), len(text))
            for part in self.parts[answer]
            for text in batches
        ]
        if retries is not None:
            left = [rest for batch in left for rest in reading.strip(retries, batch)]
        for part, data, count in left:
            send = self.lane.track((part.topic, part.index)).accept(data, count, self.world.now)
            part.sends.append(send)
            sends.append(send)
            self._batches[send] = bytes(data)
        answer.sends = sends
        self.member.arrived(answer, self.world.now)
        if not calm:
            ledger.claim(self.member, answer, answer.keys if retries is None else retries.new, self.world.now)
        return answer

    def is_cleared(self, answer: PendingProduce, frame: bytearray) -> bool:
        """Whether a request is taken without a comparison though something is in doubt."""
        ledger = self.member.ledger
        self.member.review(self.world.now, self.silence, self.empty_at)
        if ledger.is_calm(self.member, answer):
            return False
        return ledger.is_cleared(self.member, answer, frame, self.world.now)

    def prerequisite(self, answer: PendingProduce | None = None) -> Prerequisite | None:
        """What hinders a request on the partition."""
        answer = answer or PendingProduce([PartitionData(KEY, 0, 0)], 1e9)
        self.member.review(self.world.now, self.silence, self.empty_at)
        if self.member.ledger.is_calm(self.member, answer):
            return None
        return self.member.ledger.prerequisite(self.member, answer, self.world.now)

    def check(self) -> QuickCheck | None:
        """What tells without a comparison that a batch for the partition is new."""
        return self.member.ledger.quick_check(self.member, KEY, self.world.now)

    def write(self, answer: PendingProduce, *, key: TrackKey | None = None) -> None:
        """The batches of a request (of one partition) come into the log; when all have, it is closed."""
        for send in answer.sends:
            if key in (None, send.track.key) and not send.settled:
                offset = self.world.log(send.track.key).append(bytes(send.batch))
                send.track.answered(send, 0, offset, -1)
                send.noted = True
        if all(send.settled for send in answer.sends):
            self.member.closed(answer, self.world.now)

    def tell(self, answer: PendingProduce) -> None:
        """The response is handed to the kernel, and acknowledged but for ``wire.missing``."""
        self.position += ANSWER_BYTES
        self.wire.written = self.position
        answer.position, answer.at = self.position, self.world.now

    def did(self, *batches: str, keys: Sequence[TrackKey] = (KEY,), time: int = 7) -> PendingProduce:
        """A request that is written and answered."""
        answer = self.ask(*batches, keys=keys, time=time)
        self.write(answer)
        self.tell(answer)
        return answer

    def did_late(self, records: str) -> None:
        """A request that is written, and answered after its client's time-out."""
        answer = self.ask(records, due=self.world.now + 1)
        self.write(answer)
        self.world.now += 2
        self.tell(answer)

    def saw_older(self) -> None:
        """It was in use before the others were: what is open there was not sent before it was opened."""
        self.member.sees_older.update((KEY, OTHER))

    def refuse(self, records: str = "", *, time: int = 7, waited: float = 0.0) -> None:
        """A request for the partition is refused unsent, ``waited`` seconds after it was read."""
        answer, now = PendingProduce([PartitionData(KEY, 0, 0)], 1e9), self.world.now
        digests = digests_at(batch_of(records, time), LIMIT)[0] if records else Digests()
        self.member.refused_unsent(KEY, digests, now - waited, now)
        self.member.ledger.refuse(KEY, Refused.of(self.member, now, answer, digests))

    def close(self, *, reset: bool = False) -> None:
        """The client ends the connection, and kproxy has read all of it."""
        self.wire.gone, self.wire.reset = True, reset
        self.member.end(self.world.now)
        self.member.drained()
