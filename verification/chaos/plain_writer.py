"""Writes of a client that knows nothing of transactions: old Produce requests, one at a time to each leader."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from verification.chaos.habits import MAGICS, PendingRecord, record_set
from verification.chaos.link import Address, Link, LinkLost, find_leaders
from verification.chaos.recorder import Recorder

_TIMEOUT_MS: Final = 4000
_PATIENCE_S: Final = 6.0

Values = Mapping[TopicPartition, Sequence[PendingRecord]]


class PlainWriter:
    """Sends what it is given once, and tells what was acknowledged; ``client_id`` is also its name in the notes."""

    def __init__(self, client_id: str, bootstrap: Address, recorder: Recorder, version: int) -> None:
        self._version = version
        self._client_id = client_id
        self._bootstrap = bootstrap
        self._recorder = recorder
        self._links: dict[Address, Link] = {}
        self._leaders: dict[TopicPartition, Address] = {}

    async def by_leader(self, values: Values) -> list[tuple[Address, Values]]:
        """Return the values, parted by where they have to go; without those for which nobody is known."""
        if any(place not in self._leaders for place in values):
            topics = sorted({topic for topic, _ in values})
            try:
                self._leaders = await find_leaders(self._bootstrap, self._client_id, topics, _PATIENCE_S)
            except LinkLost as error:
                self._recorder.errors[str(error)] += 1
        parts: dict[Address, dict[TopicPartition, Sequence[PendingRecord]]] = defaultdict(dict)
        for place, batch in values.items():
            if place in self._leaders:
                parts[self._leaders[place]][place] = batch
        return list(parts.items())

    async def send(self, leader: Address, values: Values) -> dict[TopicPartition, int]:
        """Send one request; return the first offset of each batch that was acknowledged."""
        try:
            if leader not in self._links:
                self._links[leader] = await Link.open(leader, self._client_id)
            sent = " ".join(f"{record.value}@{record.timestamp}" for batch in values.values() for record in batch)
            self._recorder.note(self._client_id, f"to port {leader[1]}: {sent}")
            answer = await self._links[leader].call(self._request(values), self._version, ProduceResponse, _PATIENCE_S)
        except LinkLost as error:
            self._recorder.errors[str(error)] += 1
            self._recorder.note(self._client_id, f"port {leader[1]}: {error}")
            self._forget(leader, values)
            return {}
        rows = {(topic.name, row.index): row for topic in answer.responses for row in topic.partition_responses}
        refused = [ErrorCode(row.error_code).name for row in rows.values() if row.error_code]
        self._recorder.errors.update(refused)
        self._recorder.note(self._client_id, f"port {leader[1]}: {', '.join(refused) or 'acknowledged'}")
        if refused:
            self._leaders.clear()
        return {place: row.base_offset for place, row in rows.items() if not row.error_code}

    def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    def _forget(self, leader: Address, values: Values) -> None:
        link = self._links.pop(leader, None)
        if link is not None:
            link.close()
        for place in values:
            self._leaders.pop(place, None)

    def _request(self, values: Values) -> ProduceRequest:
        topics: dict[str, list[ProduceRequestPartitionProduceData]] = defaultdict(list)
        for (topic, partition), batch in values.items():
            data = record_set(batch, MAGICS[self._version], 0)
            topics[topic].append(ProduceRequestPartitionProduceData(index=partition, records=data))
        rows = [ProduceRequestTopicProduceData(name=name, partition_data=parts) for name, parts in topics.items()]
        return ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=rows)
