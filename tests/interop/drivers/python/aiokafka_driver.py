"""Driver for aiokafka."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

import transactions
import wire
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

_Result = TypeVar("_Result")


async def _produce(job: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    codec = None if step["codec"] == "none" else step["codec"]
    producer = AIOKafkaProducer(
        bootstrap_servers=job["bootstrap"], compression_type=codec, linger_ms=30, **job["options"].get("producer", {})
    )
    await producer.start()
    try:
        sent: list[Awaitable[Any]] = []
        for index, fields in enumerate(step["records"]):
            if "pace" in step and index and index % step["pace"][0] == 0:
                await asyncio.sleep(step["pace"][1] / 1000)
            sent.append(await _send(producer, step, fields))
        gathered = asyncio.gather(*sent, return_exceptions=bool(step.get("tolerant")))
        found = await asyncio.wait_for(gathered, step["timeout_ms"] / 1000)
    finally:
        await producer.stop()
    outcomes = wire.Outcomes(len(found))
    for index, metadata in enumerate(found):
        if isinstance(metadata, BaseException):
            outcomes.failed(metadata)
        else:
            outcomes.acked[index] = [metadata.partition, metadata.offset]
    return outcomes.result()


async def _send(producer: Any, step: dict[str, Any], fields: dict[str, Any]) -> Awaitable[Any]:
    """Return the record's future; where ``send`` itself fails, and the step is tolerant, one that has failed."""
    try:
        sent: Awaitable[Any] = await producer.send(
            step["topic"],
            value=wire.unpack(fields["v"]),
            key=wire.unpack(fields["k"]),
            partition=fields["p"],
            timestamp_ms=fields["ts"],
            headers=[(name, wire.unpack(data)) for name, data in fields["h"]] or None,
        )
    except KafkaError as error:
        if not step.get("tolerant"):
            raise
        failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        failed.set_exception(error)
        return failed
    return sent


async def _joined(job: dict[str, Any], topic: str, group: str) -> Any:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=job["bootstrap"],
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **job["options"].get("consumer", {}),
    )
    await consumer.start()
    return consumer


async def _consume(job: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    consumer = await _joined(job, step["topic"], step["group"])
    records: list[dict[str, Any]] = []
    positions: dict[Any, OffsetAndMetadata] = {}
    deadline = wire.Deadline(step["timeout_ms"])
    extra = None
    try:
        while deadline.left() if extra is None else extra.left():
            room = step["count"] - len(records) if extra is None else None
            for where, batch in (await consumer.getmany(timeout_ms=100, max_records=room)).items():
                for found in batch:
                    records.append(
                        wire.record(
                            found.partition, found.offset, found.key, found.value, found.timestamp, found.headers
                        )
                    )
                    positions[where] = OffsetAndMetadata(found.offset + 1, "")
            if extra is None and len(records) >= step["count"]:
                await consumer.commit(positions)
                extra = wire.Deadline(step["extra_ms"])
    finally:
        await consumer.stop()
    return {"records": records, "timed_out": len(records) < step["count"]}


class Transactional:
    """A producer as `transactions` wants it."""

    def __init__(self, runner: asyncio.Runner, job: dict[str, Any], step: dict[str, Any]) -> None:
        self._runner = runner
        self._timeout = step["timeout_ms"] / 1000
        self._group = step.get("group")
        codec = None if step["codec"] == "none" else step["codec"]
        options = {"linger_ms": 30, "compression_type": codec, **job["options"].get("producer", {})}
        self._producer = self._run(self._opened({**options, "transactional_id": step["id"]}, job["bootstrap"]))

    async def _opened(self, options: dict[str, Any], bootstrap: str) -> Any:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **options)
        await producer.start()
        return producer

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return self._runner.run(asyncio.wait_for(work, self._timeout))

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def produce(self, topic: str, records: list[dict[str, Any]], wait: bool) -> None:
        self._run(self._produced(topic, records, wait))

    async def _produced(self, topic: str, records: list[dict[str, Any]], wait: bool) -> None:
        sent = [
            await self._producer.send(topic, wire.unpack(fields["v"]), wire.unpack(fields["k"]), fields["p"])
            for fields in records
        ]
        if wait:
            await asyncio.gather(*sent)

    def send_offsets(self, _: Any, topic: str, positions: dict[int, int]) -> None:
        offsets = {TopicPartition(topic, partition): offset for partition, offset in positions.items()}
        self._run(self._producer.send_offsets_to_transaction(offsets, self._group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())


class Member:
    """A consumer as `transactions` wants it."""

    def __init__(self, runner: asyncio.Runner, job: dict[str, Any], step: dict[str, Any]) -> None:
        self._runner = runner
        self._consumer = runner.run(_joined(job, step["source"], step["group"]))

    def poll(self) -> list[transactions.Read]:
        found = self._runner.run(self._consumer.getmany(timeout_ms=100))
        return [
            transactions.Read(record.partition, record.offset, record.key, record.value)
            for batch in found.values()
            for record in batch
        ]

    def close(self) -> None:
        self._runner.run(self._consumer.stop())


def _steps(job: dict[str, Any]) -> dict[str, Any]:
    # One loop for the whole script: the clients' own tasks run whenever it runs.
    runner = asyncio.Runner()
    return {
        "produce": lambda step: runner.run(_produce(job, step)),
        "consume": lambda step: runner.run(_consume(job, step)),
        "transactions": lambda step: transactions.transactions(step, lambda: Transactional(runner, job, step)),
        "transform": lambda step: transactions.transform(
            step, lambda: Transactional(runner, job, step), lambda: Member(runner, job, step)
        ),
    }


wire.run(_steps)
