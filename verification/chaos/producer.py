"""A legacy producer with configurable behaviour: Produce v0 to v3, pipelining, batches regrouped on retry.

It does what the producers of 2014 to 2017 did. What is not acknowledged is sent again, over a new connection if the old
one may be broken, until the delivery time-out; then it continues with the next records.
"""

import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import trio

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from verification.chaos.habits import EQUAL, Habits, PendingRecord, record_set
from verification.chaos.link import Address, Link, LinkLost, find_leaders
from verification.chaos.recorder import Recorder, now
from verification.history import Kind, Operation, Outcome, Send

_ANSWER_MARGIN_S: Final = 2.0
_RETRIED: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""What the clients of that age send again on."""


_Batch = list[PendingRecord]


class LegacyProducer:
    """Sends until it is stopped, then settles what is open.

    :param bootstrap: where to ask for metadata.
    :param seed: of what its habits leave to chance.
    """

    def __init__(self, habits: Habits, bootstrap: Address, recorder: Recorder, seed: int = 0) -> None:
        self._habits = habits
        self._bootstrap = bootstrap
        self._recorder = recorder
        self._chance = random.Random(f"{habits.name} {seed}")
        self._links: dict[Address, Link] = {}
        self._leaders: dict[TopicPartition, Address] = {}
        self._number = 0
        self._timestamp = 0
        self._stopping = False

    def stop(self) -> None:
        """Send nothing new; ``run`` ends when all that is open is settled or given up."""
        self._stopping = True

    async def run(self) -> None:
        """Produce, round after round."""
        try:
            while not self._stopping:
                await self._deliver(self._make_round())
                await trio.sleep(self._habits.pause_s)
        finally:
            for address in list(self._links):
                self._drop(address)

    def _make_round(self) -> dict[TopicPartition, list[_Batch]]:
        habits = self._habits
        return {
            place: [[self._make_record(place) for _ in range(habits.batch_records)] for _ in range(habits.depth)]
            for place in habits.places
        }

    def _make_record(self, place: TopicPartition) -> PendingRecord:
        self._number += 1
        # Rising, so that equal records of this producer can be told apart by time where the format has it.
        self._timestamp = max(self._timestamp + 1, time.time_ns() // 1_000_000)
        value = EQUAL if self._habits.equal else f"{self._habits.name}:{self._number}"
        return PendingRecord(place, value, self._timestamp, now())

    async def _deliver(self, batches: dict[TopicPartition, list[_Batch]]) -> None:
        deadline = trio.current_time() + self._habits.delivery_s
        while batches:
            done = await self._attempt(batches)
            batches = self._regrouped(batches, done)
            if batches:
                if trio.current_time() > deadline:
                    self._give_up(batches)
                    return
                await trio.sleep(self._habits.backoff_s)

    async def _attempt(self, batches: dict[TopicPartition, list[_Batch]]) -> set[int]:
        """Send all batches once; return the ids of the records that are settled."""
        done: set[int] = set()
        by_leader: dict[Address, list[TopicPartition]] = defaultdict(list)
        try:
            if any(place not in self._leaders for place in batches):
                topics = sorted({topic for topic, _ in self._habits.places})
                self._leaders = await find_leaders(self._bootstrap, self._habits.name, topics, self._patience)
        except LinkLost as error:
            self._recorder.errors[str(error)] += 1
            return done
        for place in batches:
            if place in self._leaders:
                by_leader[self._leaders[place]].append(place)
        async with trio.open_nursery() as nursery:
            for leader, places in by_leader.items():
                nursery.start_soon(self._send_to, leader, {place: batches[place] for place in places}, done)
        return done

    @property
    def _patience(self) -> float:
        return self._habits.timeout_ms / 1000 + _ANSWER_MARGIN_S

    async def _send_to(self, leader: Address, batches: dict[TopicPartition, list[_Batch]], done: set[int]) -> None:
        """Pipeline the batches to one leader. Whatever goes wrong, its connection is not used again."""
        requests = _requests(batches)
        try:
            if leader not in self._links:
                self._links[leader] = await Link.open(leader, self._habits.name)
            link = self._links[leader]
            for request in requests:
                self._note_sent(leader, request)
                await link.send(self._message(request), self._habits.version, self._patience)
            for request in requests:
                answer = await link.receive(ProduceRequest(), self._habits.version, ProduceResponse, self._patience)
                self._settle(request, answer, done)
        except LinkLost as error:
            self._recorder.errors[str(error)] += 1
            self._recorder.note(self._habits.name, f"port {leader[1]}: {error}")
            self._drop(leader)
            self._forget_leaders(batches)

    def _note_sent(self, leader: Address, batches: dict[TopicPartition, _Batch]) -> None:
        for (topic, partition), batch in batches.items():
            values = " ".join(f"{record.value}@{record.timestamp}" for record in batch)
            self._recorder.note(self._habits.name, f"to port {leader[1]}: {topic}-{partition}: {values}")

    def _message(self, batches: dict[TopicPartition, _Batch]) -> ProduceRequest:
        topics: dict[str, list[ProduceRequestPartitionProduceData]] = defaultdict(list)
        for (topic, partition), batch in batches.items():
            data = record_set(batch, self._habits.magic, self._habits.codec)
            topics[topic].append(ProduceRequestPartitionProduceData(index=partition, records=data))
        topic_data = [ProduceRequestTopicProduceData(name=name, partition_data=parts) for name, parts in topics.items()]
        return ProduceRequest(acks=self._habits.acks, timeout_ms=self._habits.timeout_ms, topic_data=topic_data)

    def _settle(self, batches: dict[TopicPartition, _Batch], answer: ProduceResponse, done: set[int]) -> None:
        for topic in answer.responses:
            for part in topic.partition_responses:
                place = topic.name, part.index
                text = f"{topic.name}-{part.index}: {ErrorCode(part.error_code).name}, offset {part.base_offset}"
                self._recorder.note(self._habits.name, text)
                if part.error_code == ErrorCode.NONE:
                    self._acknowledge(batches[place], part.base_offset)
                    done.update(map(id, batches[place]))
                    continue
                name = ErrorCode(part.error_code).name
                self._recorder.errors[name] += 1
                self._forget_leaders([place])
                if part.error_code not in _RETRIED:
                    self._recorder.unexpected[name] += 1

    def _acknowledge(self, batch: _Batch, base_offset: int) -> None:
        for index, record in enumerate(batch):
            offset = base_offset + index if base_offset >= 0 else None
            self._record(record, Outcome.OK, offset)

    def _give_up(self, batches: dict[TopicPartition, list[_Batch]]) -> None:
        for record in _flat(batches.values()):
            self._record(record, Outcome.INFO, None, "delivery time over")

    def _record(self, record: PendingRecord, outcome: Outcome, offset: int | None, error: str = "") -> None:
        sends = (Send(*record.place, offset, record.value),)
        name = self._habits.name
        self._recorder.add(Operation(name, Kind.SEND, outcome, record.invoke, now(), sends, error=error))

    def _regrouped(
        self, batches: dict[TopicPartition, list[_Batch]], done: set[int]
    ) -> dict[TopicPartition, list[_Batch]]:
        """Return what is still open, in its old batches or, if that is the producer's habit, in others."""
        left: dict[TopicPartition, list[_Batch]] = {}
        for place, old in batches.items():
            kept = [batch for batch in old if not batch or id(batch[0]) not in done]
            if kept and self._habits.regroup:
                kept = self._cut_anew([record for batch in kept for record in batch])
            if kept:
                left[place] = kept
        return left

    def _cut_anew(self, records: _Batch) -> list[_Batch]:
        """Cut records into as many batches as there may be requests in flight at most, each of some length."""
        count = self._chance.randint(1, min(self._habits.depth + 1, len(records)))
        cuts = sorted(self._chance.sample(range(1, len(records)), count - 1))
        return [records[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(records)], strict=True)]

    def _forget_leaders(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self._leaders.pop(place, None)

    def _drop(self, address: Address) -> None:
        link = self._links.pop(address, None)
        if link is not None:
            link.close()


def _requests(batches: dict[TopicPartition, list[_Batch]]) -> list[dict[TopicPartition, _Batch]]:
    """Spread the batches over requests: the first of each partition into the first request, and so on."""
    count = max(map(len, batches.values()))
    return [{place: queue[n] for place, queue in batches.items() if n < len(queue)} for n in range(count)]


def _flat(queues: Iterable[list[_Batch]]) -> Iterator[PendingRecord]:
    for queue in queues:
        for batch in queue:
            yield from batch
