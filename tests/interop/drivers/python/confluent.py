"""Driver for confluent-kafka, that is for librdkafka."""

import sys
from typing import Any

import confluent_kafka
import transactions
import wire
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition


class Steps:
    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job

    def _options(self, section: str) -> dict[str, Any]:
        return {"bootstrap.servers": self._job["bootstrap"], **self._job["options"].get(section, {})}

    def producer_options(self, step: dict[str, Any]) -> dict[str, Any]:
        options = {"linger.ms": 30, "compression.type": step["codec"], **self._options("producer")}
        return {"message.timeout.ms": step["timeout_ms"], **options}

    def group_options(self, step: dict[str, Any]) -> dict[str, Any]:
        fixed = {"group.id": step["group"], "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        return {**fixed, **self._options("consumer")}

    def produce(self, step: dict[str, Any]) -> dict[str, Any]:
        options = self.producer_options(step)
        producer = Producer(options)
        transactional = "transactional.id" in options
        if transactional:
            producer.init_transactions(step["timeout_ms"] / 1000)
            producer.begin_transaction()
        outcomes = wire.Outcomes(len(step["records"]))

        def delivered(index: int) -> Any:
            def report(error: Any, message: Any) -> None:
                if error is not None:
                    outcomes.failed(error)
                else:
                    outcomes.acked[index] = [message.partition(), message.offset()]

            return report

        for index, fields in enumerate(wire.paced(step["records"], step.get("pace"))):
            try:
                _send(producer, step["topic"], fields, delivered(index))
            except KafkaException as error:
                if not step.get("tolerant"):
                    raise
                outcomes.failed(error)
        producer.flush(step["timeout_ms"] / 1000 + 1)
        if transactional:
            producer.commit_transaction(step["timeout_ms"] / 1000)
        if None in outcomes.acked and not step.get("tolerant"):
            return {"error": f"not delivered: {list(outcomes.errors)[:1]}"}
        return outcomes.result()

    def consume(self, step: dict[str, Any]) -> dict[str, Any]:
        consumer = Consumer(self.group_options(step))
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
        if message is None or not _usable(message):
            return
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


def _send(producer: Any, topic: str, fields: dict[str, Any], delivered: Any) -> None:
    more: dict[str, Any] = {} if fields["ts"] is None else {"timestamp": fields["ts"]}
    if fields["h"]:
        more["headers"] = [(name, wire.unpack(data)) for name, data in fields["h"]]
    key, value = wire.unpack(fields["k"]), wire.unpack(fields["v"])
    producer.produce(topic, value, key, partition=fields["p"], on_delivery=delivered, **more)


class Transactional:
    """A producer as `transactions` wants it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._timeout = options["message.timeout.ms"] / 1000
        self._producer = Producer(options)
        self._failed: list[Any] = []
        self._producer.init_transactions(self._timeout)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def produce(self, topic: str, records: list[dict[str, Any]], wait: bool) -> None:
        for fields in records:
            key, value = wire.unpack(fields["k"]), wire.unpack(fields["v"])
            self._producer.produce(topic, value, key, partition=fields["p"], on_delivery=self._delivered)
        if wait:
            self._flush()
            if self._failed:
                raise KafkaException(self._failed[-1])

    def _flush(self) -> None:
        try:
            self._producer.flush(self._timeout)
        except SystemError:
            # confluent-kafka 2.16 loses a fatal error that comes while it waits; the next begin gets it again
            self._producer.begin_transaction()
            raise

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def send_offsets(self, consumer: Any, topic: str, positions: dict[int, int]) -> None:
        offsets = [TopicPartition(topic, partition, offset) for partition, offset in positions.items()]
        self._producer.send_offsets_to_transaction(offsets, consumer.group_metadata(), self._timeout)

    def commit(self) -> None:
        self._producer.commit_transaction(self._timeout)

    def abort(self) -> None:
        self._failed.clear()
        self._producer.abort_transaction(self._timeout)

    def close(self) -> None:
        self._producer.purge()


class Member:
    """A consumer as `transactions` wants it."""

    def __init__(self, options: dict[str, Any], topic: str) -> None:
        self._consumer = Consumer(options)
        self._consumer.subscribe([topic])

    def poll(self) -> list[transactions.Read]:
        found = [message for message in self._consumer.consume(100, 0.1) if _usable(message)]
        return [transactions.Read(one.partition(), one.offset(), one.key(), one.value()) for one in found]

    def group_metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        self._consumer.close()


def _usable(message: Any) -> bool:
    if message.error() and message.error().code() != KafkaError._PARTITION_EOF:
        raise KafkaException(message.error())
    return not message.error()


def _steps(job: dict[str, Any]) -> dict[str, Any]:
    print("librdkafka", confluent_kafka.libversion()[0], file=sys.stderr)
    steps = Steps(job)

    def open_producer(step: dict[str, Any]) -> Transactional:
        return Transactional({**steps.producer_options(step), "transactional.id": step["id"]})

    return {
        "produce": steps.produce,
        "consume": steps.consume,
        "transactions": lambda step: transactions.transactions(step, lambda: open_producer(step)),
        "transform": lambda step: transactions.transform(
            step, lambda: open_producer(step), lambda: Member(steps.group_options(step), step["source"])
        ),
    }


wire.run(_steps)
