"""A model of an old producer: one Produce request in flight, the same bytes again until a response is received."""

import random
from collections import defaultdict
from dataclasses import dataclass
from typing import Final, Self

from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.batch import build_batch, iter_records
from kproxy.codec.message_formats import from_v2
from kproxy.codec.messages import ErrorCode
from kproxy.codec.records import Record
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.raw_connection import RawConnection
from tests.interop.records import PARTITIONS

_VERSION: Final = 2
_TIMEOUT_MS: Final = 30_000
_MOST_ATTEMPTS: Final = 50
_MOST_RECORDS: Final = 4
_ROOMY: Final = 1 << 20
_RETRIABLE: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE)


@dataclass(frozen=True)
class Send:
    """What one Produce request brings to one partition."""

    partition: int
    records: tuple[Record, ...]

    def message_set(self) -> bytes:
        """Return the records as a message set of magic 1."""
        batch = bytes(build_batch(list(self.records)))
        converted = from_v2(
            batch, magic=1, first_offset=0, transcode={}, max_decompressed_bytes=_ROOMY, max_bytes=_ROOMY
        )
        return bytes(converted.data)


class Resender:
    """Sends to a topic's leader (all partitions must have the same), found through `bootstrap` once."""

    def __init__(self, bootstrap: str, topic: str, client_id: str) -> None:
        self._topic, self._client_id = topic, client_id
        host, _, port = bootstrap.rpartition(":")
        with RawConnection(host, int(port), client_id=client_id) as connection:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
            [broker] = connection.call(request, 1, MetadataResponse).brokers
        self.place = broker.host, broker.port
        self._connection: RawConnection | None = None
        self.lost_answers = 0

    def send(self, send: Send) -> None:
        """Send until a response says that it is written.

        :raises AssertionError: the response is an error that no retry mends, or none came in 50 attempts.
        """
        part = ProduceRequestPartitionProduceData(index=send.partition, records=send.message_set())
        data = ProduceRequestTopicProduceData(name=self._topic, partition_data=[part])
        request = ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[data])
        for _ in range(_MOST_ATTEMPTS):
            code = self._attempt(request)
            if code == ErrorCode.NONE:
                return
            assert code is None or code in _RETRIABLE, ErrorCode(code).name
        raise AssertionError(f"no answer in {_MOST_ATTEMPTS} attempts")

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _attempt(self, request: ProduceRequest) -> int | None:
        try:
            if self._connection is None:
                self._connection = RawConnection(*self.place, client_id=self._client_id)
            answer = self._connection.call(request, _VERSION, ProduceResponse)
        except ConnectionError:
            self.lost_answers += 1
            self.close()
            return None
        return answer.responses[0].partition_responses[0].error_code


def half_equal(count: int, first_ms: int) -> list[Send]:
    """Return sends of one to four records with timestamps all different; every other has an earlier one's payloads."""
    chance = random.Random(count)
    sends: list[Send] = []
    for index in range(count):
        if index % 2 and chance.random() < 0.5:
            model = sends[-1]
        elif index % 2:
            model = chance.choice(sends)
        else:
            model = _fresh(index, chance.randint(1, _MOST_RECORDS))
        stamped = [
            record._replace(timestamp=first_ms + _MOST_RECORDS * index + number)
            for number, record in enumerate(model.records)
        ]
        sends.append(Send(model.partition, tuple(stamped)))
    return sends


def _fresh(index: int, size: int) -> Send:
    payloads = [(b"key-%d" % (index % 60), b"%d of %d" % (number, index)) for number in range(size)]
    records = [Record(number, 0, key, value, ()) for number, (key, value) in enumerate(payloads)]
    return Send(index % 60 % PARTITIONS, tuple(records))


@dataclass(frozen=True)
class Comparison:
    """A log against the sends, in records: copies too many, records missing, and whether the rest is in order."""

    doubled: int
    merged: int
    in_order: bool


def compare(broker: str, topic: str, sends: list[Send]) -> Comparison:
    """Read a topic straight from its broker; a record is known by its timestamp, which no two share."""
    wanted: dict[int, list[tuple[int, bytes, bytes]]] = defaultdict(list)
    for send in sends:
        wanted[send.partition] += [_identity(record) for record in send.records]
    doubled, merged, in_order = 0, 0, True
    with ClusterClient(broker) as client:
        for partition, expected in wanted.items():
            data = client.read_all(topic, partition)
            found = [_identity(record) for record in iter_records(data, max_decompressed_bytes=_ROOMY)]
            known = dict.fromkeys(found)
            doubled += len(found) - len(known)
            merged += len(set(expected) - known.keys())
            in_order &= list(known) == [record for record in expected if record in known]
    return Comparison(doubled, merged, in_order)


def _identity(record: Record) -> tuple[int, bytes, bytes]:
    return record.timestamp, bytes(record.key or b""), bytes(record.value or b"")
