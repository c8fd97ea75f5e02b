"""Driver for pykafka, which speaks the protocol of 0.9 and no other group protocol."""

import logging
import time
from typing import Any

import wire
from pykafka import KafkaClient
from pykafka.common import CompressionType, OffsetType

logging.basicConfig(level=logging.WARNING)

_CODECS = {"none": CompressionType.NONE, "gzip": CompressionType.GZIP, "snappy": CompressionType.SNAPPY}


class Steps:
    def __init__(self, job: dict[str, Any]) -> None:
        self._options = {"linger_ms": 30, **job["options"].get("producer", {})}
        self._client = KafkaClient(hosts=job["bootstrap"], broker_version="0.9.0")

    def produce(self, step: dict[str, Any]) -> dict[str, Any]:
        chosen: list[int] = []  # the partition of the record that is handed over
        topic = self._client.topics[step["topic"].encode()]
        producer = topic.get_producer(
            compression=_CODECS[step["codec"]],
            delivery_reports=True,
            partitioner=lambda partitions, key: next(each for each in partitions if each.id == chosen[-1]),
            **self._options,
        )
        reports, size = [], step.get("chunk", len(step["records"]))
        for start in range(0, len(step["records"]), size):
            chunk = step["records"][start : start + size]
            for fields in chunk:
                chosen[:] = [fields["p"]]
                producer.produce(wire.unpack(fields["v"]), partition_key=wire.unpack(fields["k"]))
            reports += [producer.get_delivery_report(timeout=step["timeout_ms"] / 1000) for _ in chunk]
        producer.stop()
        failed = [error for _, error in reports if error is not None]
        if failed:
            raise failed[0]
        return {"acked": _in_order(step["records"], [message for message, _ in reports])}

    def consume(self, step: dict[str, Any]) -> dict[str, Any]:
        consumer = self._client.topics[step["topic"].encode()].get_balanced_consumer(
            consumer_group=step["group"].encode(),
            managed=True,
            auto_offset_reset=OffsetType.EARLIEST,
            fetch_wait_max_ms=100,
        )
        records: list[dict[str, Any]] = []
        deadline = wire.Deadline(step["timeout_ms"])
        while len(records) < step["count"] and deadline.left():
            _take(consumer, records)
        consumer.commit_offsets()
        count = len(records)
        extra = wire.Deadline(step["extra_ms"])
        while extra.left():
            _take(consumer, records)
        consumer.stop()
        return {"records": records, "timed_out": count < step["count"]}


def _in_order(records: list[dict[str, Any]], messages: list[Any]) -> list[list[int]]:
    """Where each record is: reports come in the order of partitions, each in the order of its records."""
    offsets: dict[int, list[int]] = {}
    for message in messages:
        offsets.setdefault(message.partition_id, []).append(message.offset)
    places = {partition: iter(sorted(found)) for partition, found in offsets.items()}
    return [[fields["p"], next(places[fields["p"]])] for fields in records]


def _take(consumer: Any, records: list[dict[str, Any]]) -> None:
    found = consumer.consume(block=False)
    if found is None:
        time.sleep(0.01)
    else:
        records.append(wire.record(found.partition_id, found.offset, found.partition_key, found.value, None, ()))


def _steps(job: dict[str, Any]) -> dict[str, Any]:
    steps = Steps(job)
    return {"produce": steps.produce, "consume": steps.consume}


wire.run(_steps)
