"""An application on aiokafka that copies records in transactions, one command after the other (README.md: copiers)."""

import asyncio
import json
import sys
from typing import Any

import copying
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.structs import TopicPartition


class _Assignments(ConsumerRebalanceListener):  # type: ignore[misc]
    """Reports when the group has given its partitions to this member again."""

    def __init__(self) -> None:
        self.new = asyncio.Event()

    async def on_partitions_revoked(self, revoked: Any) -> None:
        pass

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.new.set()


class Copier:
    """A consumer and a producer with one client.id."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._common = copying.common(job)
        self._assignments = _Assignments()
        self._positions: dict[TopicPartition, int] = {}
        self._consumer: Any = None
        self._producer: Any = None

    async def write(self) -> str:
        job = self._job
        self._consumer = AIOKafkaConsumer(**copying.consumer(job))
        self._consumer.subscribe([job["source"]], listener=self._assignments)
        await self._consumer.start()
        await self._open()
        await self._producer.begin_transaction()
        for _ in range(job["count"]):
            found = await self._consumer.getone()
            await self._producer.send_and_wait(job["target"], found.value, job["client_id"].encode())
            self._positions[TopicPartition(found.topic, found.partition)] = found.offset + 1
        self._assignments.new.clear()
        return "written"

    async def joined(self) -> str:
        """What aiokafka does by itself, whatever the application is at."""
        await self._assignments.new.wait()
        return "joined"

    async def commit(self) -> str:
        try:
            await self._producer.send_offsets_to_transaction(self._positions, self._job["group"])
            await self._producer.commit_transaction()
        except Exception as error:
            await self._give_up()
            return f"refused: {error!r}"
        return "committed"

    async def _open(self) -> None:
        self._producer = AIOKafkaProducer(transactional_id=self._job["id"], **self._common)
        await self._producer.start()

    async def _give_up(self) -> None:
        try:
            await self._producer.abort_transaction()
        except Exception:
            # The producer takes the error for its end: the next one of this id aborts what it has left open.
            await self._open()

    async def close(self) -> None:
        for client in (self._consumer, self._producer):
            if client is not None:
                await client.stop()


async def _main() -> None:
    copier = Copier(json.loads(sys.argv[1]))
    commands = {"write": copier.write, "joined": copier.joined, "commit": copier.commit}
    try:
        while line := await asyncio.to_thread(sys.stdin.readline):
            print("RESULT " + await commands[line.strip()](), flush=True)
    finally:
        await copier.close()


asyncio.run(_main())
