"""Driver for aiokafka."""

import asyncio
from typing import Any

import wire
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import OffsetAndMetadata


async def _produce(job: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    codec = None if step["codec"] == "none" else step["codec"]
    producer = AIOKafkaProducer(
        bootstrap_servers=job["bootstrap"], compression_type=codec, linger_ms=30, **job["options"].get("producer", {})
    )
    await producer.start()
    try:
        sent = [
            await producer.send(
                step["topic"],
                value=wire.unpack(fields["v"]),
                key=wire.unpack(fields["k"]),
                partition=fields["p"],
                timestamp_ms=fields["ts"],
                headers=[(name, wire.unpack(data)) for name, data in fields["h"]] or None,
            )
            for fields in step["records"]
        ]
        acked = await asyncio.wait_for(asyncio.gather(*sent), step["timeout_ms"] / 1000)
    finally:
        await producer.stop()
    return {"acked": [[metadata.partition, metadata.offset] for metadata in acked]}


async def _consume(job: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    consumer = AIOKafkaConsumer(
        step["topic"],
        bootstrap_servers=job["bootstrap"],
        group_id=step["group"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **job["options"].get("consumer", {}),
    )
    await consumer.start()
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


def _steps(job: dict[str, Any]) -> dict[str, Any]:
    return {
        "produce": lambda step: asyncio.run(_produce(job, step)),
        "consume": lambda step: asyncio.run(_consume(job, step)),
    }


wire.run(_steps)
