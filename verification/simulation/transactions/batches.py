"""A batch of a model producer: some records for one partition, under one sequence for ever."""

from collections.abc import Mapping
from typing import Final

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.txn.ids import Producer
from verification.simulation.plan import TOPIC

_TIMEOUT_MS: Final = 4000
#: Of all records: compacted topics take none without a key.
_KEY: Final = b"k"


class ClientBatch:
    """One, and the request that carries it."""

    def __init__(self, place: int, values: list[bytes], transactional_id: str, me: Producer, sequence: int) -> None:
        """``me`` as the client knows itself."""
        self.place = place
        self.values = values
        self.sequence = sequence
        self.text = b" ".join(values).decode()
        data = build_batch(
            [Record(at, 0, _KEY, value) for at, value in enumerate(values)],
            producer_id=me.producer_id,
            producer_epoch=me.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        self.request = _request({place: data}, transactional_id)


def plain_request(values: Mapping[int, list[bytes]]) -> ProduceRequest:
    """New records by partition, of a client that knows nothing of transactions."""
    data = {
        place: build_batch([Record(at, 0, _KEY, value) for at, value in enumerate(some)])
        for place, some in values.items()
    }
    return _request(data, None)


def _request(data: Mapping[int, bytearray], transactional_id: str | None) -> ProduceRequest:
    parts = [ProduceRequestPartitionProduceData(index=place, records=bytes(some)) for place, some in data.items()]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[ProduceRequestTopicProduceData(name=TOPIC, partition_data=parts)],
    )
