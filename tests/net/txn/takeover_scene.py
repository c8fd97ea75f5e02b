"""One request of an instance to the log or to data, stopped where a test wants it, and what must hold after it."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

import trio

from kproxy.codec.batch import iter_records
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn.log_topic import TOPIC
from kproxy.testing.fake_broker import Answer, Call, Close
from kproxy.testing.fake_broker.apis import APIS
from kproxy.testing.fake_broker.controls import Fault
from kproxy.txn.ids import BLOCK_EPOCHS
from kproxy.txn.log_records import Entry, RecordKind, decode
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView, LogPosition
from tests.net.txn.instances import Cast, Client, Instance
from tests.net.txn.log_harness import PATIENCE

P0, P1 = ("t", 0), ("t", 1)
GROUP: Final = "g"
OFFSET: Final = 5


class Point(Enum):
    """How far a request comes before its instance ends, or pauses."""

    LOST = auto()
    """It never arrives."""
    LATE = auto()
    """It arrives when somebody else has taken over."""
    UNACKNOWLEDGED = auto()
    """It is appended; the response is lost, or comes late."""


@dataclass
class Gate:
    """Stops one Produce request at a point. ``kind``: of the record for the log; None: data."""

    kind: RecordKind | None
    point: Point
    nth: int = 1
    reached: trio.Event = field(default_factory=trio.Event)
    go: trio.Event = field(default_factory=trio.Event)
    _seen: int = 0

    def close(self, cast: Cast) -> None:
        """From now on the request is stopped."""
        cast.fake.cluster.control(ApiKey.PRODUCE, self.control, times=1)

    async def control(self, call: Call) -> Fault | None:
        """As the fake broker asks."""
        if not self._is_meant(call) or self.reached.is_set():
            return None
        self._seen += 1
        if self._seen < self.nth:
            return None
        answer = await APIS[ApiKey.PRODUCE].handle(call) if self.point is Point.UNACKNOWLEDGED else None
        self.reached.set()
        await self.go.wait()
        if answer is not None:
            return Answer(answer)
        return Close() if self.point is Point.LOST else None

    def _is_meant(self, call: Call) -> bool:
        (topic,) = call.request.topic_data
        if topic.name != TOPIC:
            return self.kind is None
        return any(entry.kind is self.kind for entry in entries(bytes(topic.partition_data[0].records)))


def entries(data: bytes) -> Iterator[Entry]:
    """What a batch of the log says."""
    return (decode(row.key, row.value) for row in iter_records(data, max_decompressed_bytes=1 << 20))


# -- the steps of a transaction, each with a request that can be stopped


Ask = Callable[[Client, Instance], Awaitable[Any]]


@dataclass(frozen=True)
class Step:
    """``prepare`` leads there, at any instance; ``ask`` is what the client asks for, and asks again."""

    kind: RecordKind | None
    prepare: Ask
    ask: Ask
    nth: int = 1


async def _nothing(client: Client, at: Instance) -> None:
    """The id is new."""


async def _begun(client: Client, at: Instance) -> None:
    """One transaction is committed, and the next one may begin."""
    await client.init(at)
    await client.write(at, "1", P0, P1)
    await client.end(at)


async def _joined(client: Client, at: Instance) -> None:
    await _begun(client, at)
    if not client.bumps:
        await client.add(at, P0, P1)


async def _written(client: Client, at: Instance) -> None:
    await _begun(client, at)
    await client.write(at, "2", P0, P1)


async def _with_offsets(client: Client, at: Instance) -> None:
    await _written(client, at)
    await client.offsets(at, GROUP, OFFSET)


async def _block_used_up(client: Client, at: Instance) -> None:
    await _begun(client, at)
    for _ in range(BLOCK_EPOCHS - 1):
        if not client.bumps:
            await client.add(at, P0)
        await client.end(at, committed=False)


async def _init(client: Client, at: Instance) -> None:
    await client.init(at)


async def _send(client: Client, at: Instance) -> None:
    """The same batches whenever it is asked; TxnError also if one of them is refused."""
    batches = [replace_sequence(client, place) for place in (P0, P1)]
    rows = await client.send(at, batches)
    refused = next((row.error_code for row in rows if row.error_code), 0)
    if refused:
        raise TxnError(ErrorCode(refused), "a batch was refused")


def replace_sequence(client: Client, place: tuple[str, int]) -> Any:
    """The batch that stands at this place; it is not used up, so that the next is the same again."""
    had = dict(client._next)
    batch = client.batch("2", place)
    client._next.clear()
    client._next.update(had)
    return batch


async def _add_and_send(client: Client, at: Instance) -> None:
    if not client.bumps:
        await client.add(at, P0, P1)
    await _send(client, at)


async def _offsets(client: Client, at: Instance) -> None:
    await client.offsets(at, GROUP, OFFSET)


async def _end(client: Client, at: Instance) -> None:
    await client.end(at)


STEPS: Final = {
    "init": Step(RecordKind.CLAIM, _nothing, _init),
    "init-again": Step(RecordKind.CLAIM, _written, _init),
    "announce": Step(RecordKind.PARTITIONS, _joined, _send),
    "data": Step(None, _joined, _send),
    "second-data": Step(None, _joined, _send, nth=2),
    "offsets": Step(RecordKind.OFFSETS, _written, _offsets),
    "decision": Step(RecordKind.DECISION, _with_offsets, _end),
    "next-block": Step(RecordKind.CLAIM, _block_used_up, _add_and_send),
}


# -- what must hold


def log_of(cast: Cast) -> list[Entry]:
    """All that the log says of the one id that tests use, in order."""
    found: list[Entry] = []
    for partition in cast.fake.cluster.topics[TOPIC].partitions:
        for data in cast.batches(TOPIC, partition.index):
            found += entries(data)
    return found


def nothing_of_former_owners(cast: Cast) -> None:
    """After a claim that holds, no record under an earlier one was accepted: brokers fence paused or late instances."""
    view = IdView("id")
    for at, entry in enumerate(log_of(cast)):
        view.apply(entry.body, LogPosition(at, at))
        nonce = getattr(entry.body, "nonce", None)
        if nonce is not None and entry.kind is not RecordKind.CLAIM:
            assert view.is_ours(nonce), f"{entry.kind.name} of a former owner"


async def shown(cast: Cast, *instances: Instance) -> list[str]:
    """What all readers see, on both partitions: nothing torn, nothing twice, nothing that waits for ever."""
    fresh = await cast.instance("reader")
    found: list[list[str]] = []
    for instance in (*instances, fresh):
        with trio.fail_after(PATIENCE):
            await instance.transactions.log.read_to_end("id")
        views = instance.transactions.views
        found += [cast.visible(views, partition=index) for index in (0, 1)]
    assert all(values == found[0] for values in found), found
    assert len(set(found[0])) == len(found[0]), found[0]
    await fresh.kill()
    return found[0]
