"""Driver for confluent-kafka, that is for librdkafka."""

import sys
from typing import Any

import confluent_kafka
import wire
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition


class Steps:
    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job

    def _options(self, section: str) -> dict[str, Any]:
        return {"bootstrap.servers": self._job["bootstrap"], **self._job["options"].get(section, {})}

    def produce(self, step: dict[str, Any]) -> dict[str, Any]:
        options = {"linger.ms": 30, "compression.type": step["codec"], **self._options("producer")}
        options["message.timeout.ms"] = step["timeout_ms"]
        producer = Producer(options)
        transactional = "transactional.id" in options
        if transactional:
            producer.init_transactions(step["timeout_ms"] / 1000)
            producer.begin_transaction()
        acked: list[list[int] | None] = [None] * len(step["records"])
        errors: list[str] = []

        def delivered(index: int) -> Any:
            def report(error: Any, message: Any) -> None:
                if error is not None:
                    errors.append(str(error))
                else:
                    acked[index] = [message.partition(), message.offset()]

            return report

        for index, fields in enumerate(step["records"]):
            more: dict[str, Any] = {} if fields["ts"] is None else {"timestamp": fields["ts"]}
            if fields["h"]:
                more["headers"] = [(name, wire.unpack(data)) for name, data in fields["h"]]
            producer.produce(
                step["topic"],
                key=wire.unpack(fields["k"]),
                value=wire.unpack(fields["v"]),
                partition=fields["p"],
                on_delivery=delivered(index),
                **more,
            )
        producer.flush(step["timeout_ms"] / 1000 + 1)
        if transactional:
            producer.commit_transaction(step["timeout_ms"] / 1000)
        if errors or None in acked:
            return {"error": f"not delivered: {errors[:1]}"}
        return {"acked": acked}

    def consume(self, step: dict[str, Any]) -> dict[str, Any]:
        consumer = Consumer(
            {
                "group.id": step["group"],
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **self._options("consumer"),
            }
        )
        if self._job["options"].get("assign"):
            # Against brokers older than 0.9 librdkafka has no groups, only offsets.
            wanted = [TopicPartition(step["topic"], partition) for partition in range(3)]
            consumer.assign(consumer.committed(wanted, step["timeout_ms"] / 1000))
        else:
            consumer.subscribe([step["topic"]])
        records: list[dict[str, Any]] = []
        positions: dict[int, int] = {}
        deadline = wire.Deadline(step["timeout_ms"])
        while len(records) < step["count"] and deadline.left():
            self._take(consumer, records, positions)
        if positions:
            where = [TopicPartition(step["topic"], partition, offset) for partition, offset in positions.items()]
            for result in consumer.commit(offsets=where, asynchronous=False):
                if result.error:
                    raise KafkaException(result.error)
        extra = wire.Deadline(step["extra_ms"])
        while extra.left():
            self._take(consumer, records, positions)
        consumer.close()
        return {"records": records, "timed_out": len(records) < step["count"]}

    def _take(self, consumer: Any, records: list[dict[str, Any]], positions: dict[int, int]) -> None:
        message = consumer.poll(0.1)
        if message is None:
            return
        if message.error():
            if message.error().code() == KafkaError._PARTITION_EOF:
                return
            raise KafkaException(message.error())
        kind, timestamp = message.timestamp()
        records.append(
            wire.record(
                message.partition(),
                message.offset(),
                message.key(),
                message.value(),
                timestamp if kind else None,
                message.headers(),
            )
        )
        positions[message.partition()] = message.offset() + 1


def _steps(job: dict[str, Any]) -> dict[str, Any]:
    print("librdkafka", confluent_kafka.libversion()[0], file=sys.stderr)
    steps = Steps(job)
    return {"produce": steps.produce, "consume": steps.consume}


wire.run(_steps)
