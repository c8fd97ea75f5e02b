"""Attacks by idempotent clients: each takes a running kproxy, and returns what came back, in a few words."""

import socket
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from kproxy.budget import unbounded
from kproxy.codec._generated.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsResponse,
)
from kproxy.codec._generated.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.header import encode_request
from kproxy.codec.messages import ErrorCode
from verification.hostile.attacks import HOSTILE, ask
from verification.hostile.target import Besieged

_TOPIC: Final = "gaps"
_PARTITIONS: Final = 10_000
_FOREIGN_IDS: Final = 2_000
#: Response header of flexible versions: correlation id, and no tags.
_HEADER: Final = 5


def sequence_gaps(proxy: Besieged) -> str:
    """Gaps in the sequences of 10,000 partitions, again and again, also after raised epochs."""
    with proxy.client() as client, proxy.connect(HOSTILE) as sock:
        topics = [CreateTopicsRequestCreatableTopic(_TOPIC, _PARTITIONS, 1)]
        client.any_broker().call(CreateTopicsRequest(topics, timeout_ms=10_000), 5, CreateTopicsResponse)
        try:
            producer_id, found = _begin(sock), Counter[int]()
            for epoch, sequence in ((0, 0), (0, 5), (0, 5), (1, 7), (2, 0), (1, 1)):
                found.update(_write(sock, _TOPIC, range(_PARTITIONS), producer_id, epoch, sequence))
        finally:
            client.any_broker().call(DeleteTopicsRequest(topic_names=[_TOPIC]), 4, DeleteTopicsResponse)
    assert found[ErrorCode.NONE] > _PARTITIONS
    proxy.serves_others()
    return ", ".join(f"{count} {ErrorCode(error).name}" for error, count in found.items())


def foreign_ids(proxy: Besieged) -> str:
    """2,000 producer ids that the client was not given, and the one of another client, with raised epochs."""
    with proxy.connect() as honest, proxy.connect(HOSTILE) as sock:
        own = _begin(honest, "honest")
        assert _write(honest, "t", [0], own, 0, 0, "honest") == [0]
        found: Counter[int] = Counter()
        for number in range(_FOREIGN_IDS):
            found.update(_write(sock, "t", [0], own + number, 1 + number % 3, number))
        assert _write(honest, "t", [0], own, 0, 1, "honest") == [0]
    assert found == {ErrorCode.INVALID_PRODUCER_ID_MAPPING: _FOREIGN_IDS}
    return f"{_FOREIGN_IDS} refused"


def _begin(sock: socket.socket, client_id: str = "hostile") -> int:
    [found] = ask(sock, [encode_request(InitProducerIdRequest(None, 60_000), 4, 1, client_id)])
    return InitProducerIdResponse.decode(memoryview(found)[_HEADER:], 4, unbounded()).producer_id


def _write(
    sock: socket.socket,
    topic: str,
    partitions: Sequence[int],
    producer_id: int,
    epoch: int,
    sequence: int,
    client_id: str = "hostile",
) -> list[int]:
    """The errors of one batch for each of the partitions."""
    record = Record(0, int(time.time() * 1000), None, b"x", ())
    batch = build_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    rows = [ProduceRequestPartitionProduceData(index, bytes(batch)) for index in partitions]
    data = ProduceRequestTopicProduceData(topic, partition_data=rows)
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data])
    [found] = ask(sock, [encode_request(request, 9, 2, client_id)])
    response = ProduceResponse.decode(memoryview(found)[_HEADER:], 9, unbounded())
    return [row.error_code for each in response.responses for row in each.partition_responses]
