"""Driver for kafka-python (1.4, 2.0 and 3)."""

import sys
import warnings
from typing import Any

import installed_six
import transactions
import wire

warnings.simplefilter("ignore")


installed_six.use()

from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # noqa: E402
from kafka.structs import OffsetAndMetadata  # noqa: E402


def _options(job: dict[str, Any], section: str) -> dict[str, Any]:
    options = dict(job["options"].get(section, {}))
    version = job["options"].get("version")
    if version:
        options["api_version"] = tuple(version)
    return {"bootstrap_servers": job["bootstrap"], **options}


def _position(offset: int) -> OffsetAndMetadata:
    fields = len(OffsetAndMetadata._fields)
    return OffsetAndMetadata(*(offset, "", -1)[:fields])


def _group_options(job: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    fixed = {"group_id": step["group"], "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    return {**fixed, **_options(job, "consumer")}


class Steps:
    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._version = tuple(job["options"].get("version") or (99,))

    def produce(self, step: dict[str, Any]) -> dict[str, Any]:
        codec = None if step["codec"] == "none" else step["codec"]
        producer = KafkaProducer(linger_ms=30, compression_type=codec, **_options(self._job, "producer"))
        records = wire.paced(step["records"], step.get("pace"))
        sent: list[Any] = []
        outcomes = wire.Outcomes(len(step["records"]))
        for fields in records:
            try:
                sent.append(self._send(producer, step["topic"], fields))
            except Exception as error:
                if not step.get("tolerant"):
                    raise
                sent.append(None)
                outcomes.failed(error)
        for index, future in enumerate(sent):
            if future is None:
                continue
            try:
                metadata = future.get(step["timeout_ms"] / 1000)
                outcomes.acked[index] = [metadata.partition, metadata.offset]
            except Exception as error:
                if not step.get("tolerant"):
                    raise
                outcomes.failed(error)
        producer.close()
        return outcomes.result()

    def _send(self, producer: Any, topic: str, fields: dict[str, Any]) -> Any:
        more: dict[str, Any] = {}
        if self._version >= (0, 10):
            more["timestamp_ms"] = fields["ts"]
        if self._version >= (0, 11):
            more["headers"] = [(name, wire.unpack(data)) for name, data in fields["h"]]
        return producer.send(
            topic, key=wire.unpack(fields["k"]), value=wire.unpack(fields["v"]), partition=fields["p"], **more
        )

    def consume(self, step: dict[str, Any]) -> dict[str, Any]:
        consumer = KafkaConsumer(**_group_options(self._job, step))
        if self._version < (0, 9):
            # No groups before 0.9: a consumer of that age takes its partitions itself.
            consumer.assign([TopicPartition(step["topic"], partition) for partition in range(3)])
        else:
            consumer.subscribe([step["topic"]])
        records: list[dict[str, Any]] = []
        positions: dict[TopicPartition, OffsetAndMetadata] = {}
        deadline = wire.Deadline(step["timeout_ms"])
        while len(records) < step["count"] and deadline.left():
            self._take(consumer, step["count"], records, positions)
        if positions:
            consumer.commit(positions)
        extra = wire.Deadline(step["extra_ms"])
        while extra.left():
            self._take(consumer, sys.maxsize, records, positions)
        consumer.close()
        return {"records": records, "timed_out": len(records) < step["count"]}

    def _take(
        self,
        consumer: Any,
        count: int,
        records: list[dict[str, Any]],
        positions: dict[TopicPartition, OffsetAndMetadata],
    ) -> None:
        for where, batch in consumer.poll(timeout_ms=1000).items():
            for found in batch[: count - len(records)]:
                records.append(
                    wire.record(
                        found.partition,
                        found.offset,
                        found.key,
                        found.value,
                        found.timestamp,
                        found.headers if hasattr(found, "headers") else (),
                    )
                )
                positions[where] = _position(found.offset + 1)

    def admin(self, step: dict[str, Any]) -> dict[str, Any]:
        """Make a topic, look at the groups, delete the topic: what the administrative calls of that age do."""
        from kafka import KafkaAdminClient
        from kafka.admin import NewTopic

        admin = KafkaAdminClient(**_options(self._job, "admin"))
        admin.create_topics([NewTopic(step["topic"], 2, 1)], timeout_ms=step["timeout_ms"])
        watcher = KafkaConsumer(**_options(self._job, "consumer"))
        made = sorted(watcher.partitions_for_topic(step["topic"]) or ())
        groups = [name for name, _ in admin.list_consumer_groups()]
        admin.delete_topics([step["topic"]], timeout_ms=step["timeout_ms"])
        deadline = wire.Deadline(step["timeout_ms"])
        while step["topic"] in watcher.topics() and deadline.left():
            pass
        left = step["topic"] in watcher.topics()
        watcher.close()
        admin.close()
        return {"partitions": made, "groups": groups, "left": left}


class Transactional:
    """A producer of kafka-python 3 as `transactions` wants it."""

    def __init__(self, job: dict[str, Any], step: dict[str, Any]) -> None:
        self._timeout = step["timeout_ms"] / 1000
        codec = None if step["codec"] == "none" else step["codec"]
        options = {"linger_ms": 30, "compression_type": codec, **_options(job, "producer")}
        self._producer = KafkaProducer(**{**options, "transactional_id": step["id"]})
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def produce(self, topic: str, records: list[dict[str, Any]], wait: bool) -> None:
        sent = [
            self._producer.send(
                topic, key=wire.unpack(fields["k"]), value=wire.unpack(fields["v"]), partition=fields["p"]
            )
            for fields in records
        ]
        for future in sent if wait else ():
            future.get(self._timeout)

    def send_offsets(self, consumer: Any, topic: str, positions: dict[int, int]) -> None:
        offsets = {TopicPartition(topic, partition): _position(offset) for partition, offset in positions.items()}
        self._producer.send_offsets_to_transaction(offsets, consumer.group_metadata())

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(1)


class Member:
    """A consumer of kafka-python 3 as `transactions` wants it."""

    def __init__(self, job: dict[str, Any], step: dict[str, Any]) -> None:
        self._consumer = KafkaConsumer(**_group_options(job, step))
        self._consumer.subscribe([step["source"]])

    def poll(self) -> list[transactions.Read]:
        found = [record for batch in self._consumer.poll(timeout_ms=1000).values() for record in batch]
        return [transactions.Read(record.partition, record.offset, record.key, record.value) for record in found]

    def group_metadata(self) -> Any:
        return self._consumer.group_metadata()

    def close(self) -> None:
        self._consumer.close()


def _steps(job: dict[str, Any]) -> dict[str, Any]:
    steps = Steps(job)
    return {
        "produce": steps.produce,
        "consume": steps.consume,
        "admin": steps.admin,
        "transactions": lambda step: transactions.transactions(step, lambda: Transactional(job, step)),
        "transform": lambda step: transactions.transform(
            step, lambda: Transactional(job, step), lambda: Member(job, step)
        ),
    }


wire.run(_steps)
