"""Handles of scripts: requests to brokers by their contents, steps of producers, generations of groups."""

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final

import trio

from kproxy.codec._generated.transaction_expiry import TransactionExpiry
from kproxy.codec.batch import iter_records
from kproxy.codec.messages import ApiKey, Message
from kproxy.errors import RemoteProtocolError
from kproxy.net.txn.log_topic import TOPIC as LOG
from kproxy.proxy.routing import is_own_topic
from kproxy.testing.fake_broker import Answer, Call
from kproxy.testing.fake_broker.apis import APIS
from kproxy.testing.fake_broker.consumer_groups import Group, GroupState
from kproxy.testing.fake_broker.controls import Fault
from kproxy.testing.fake_broker.group_members import Member
from kproxy.testing.fake_broker.producers import ProducerStates
from kproxy.txn.log_records import Entry, decode
from verification.simulation.instance import LEG
from verification.simulation.transactions.coordinators import Fatal
from verification.simulation.transactions.process import Abortable

if TYPE_CHECKING:
    from verification.simulation.transactions.world import TransactionWorld

_LIMIT: Final = 1 << 20
_SESSION_MS: Final = 600_000


def log_entries(call: Call) -> Iterator[Entry]:
    """The entries that a Produce request appends to the transaction log."""
    for topic in call.request.topic_data:
        for part in topic.partition_data if topic.name == LOG else ():
            for record in iter_records(part.records, max_decompressed_bytes=_LIMIT):
                try:
                    yield decode(record.key, record.value)
                except RemoteProtocolError:
                    continue


def values(call: Call) -> Iterator[bytes]:
    """The records of a Produce request that are not for topics of kproxy's own."""
    for topic in call.request.topic_data:
        for part in () if is_own_topic(topic.name) else topic.partition_data:
            for record in iter_records(part.records, max_decompressed_bytes=_LIMIT):
                yield record.value or b""


class Gate:
    """Holds requests back until it is opened; they are served then."""

    def __init__(self, world: "TransactionWorld", holds: Callable[[Call], bool], *, serves: bool = False) -> None:
        """``holds`` tells which Produce requests. ``serves``: they are served at once, and their responses held."""
        self._holds = holds
        self._serves = serves
        self._opened = trio.Event()
        #: Set when the first of them has come.
        self.reached = trio.Event()
        world.brokers.control(ApiKey.PRODUCE, self._control)

    async def _control(self, call: Call) -> Fault | None:
        if self._opened.is_set() or not self._holds(call):
            return None
        answer = await APIS[ApiKey.PRODUCE].handle(call) if self._serves else None
        self.reached.set()
        await self._opened.wait()
        return Answer(answer) if answer is not None else None

    def open(self) -> None:
        """Releases all requests, and holds none from now on."""
        self._opened.set()


def of_log(kind: type[Message], transactional_id: str | None = None) -> Callable[[Call], bool]:
    """Requests with a record of a kind for the transaction log; of one id, or of any."""
    return lambda call: any(
        isinstance(entry.body, kind) and transactional_id in (None, entry.transactional_id)
        for entry in log_entries(call)
    )


def befall(world: "TransactionWorld", holds: Callable[[Call], bool], *faults: Fault | None) -> None:
    """Sets the fault of the first of these Produce requests, of the second, and so on; None: it is served."""
    left = list(faults)

    def control(call: Call) -> Fault | None:
        return left.pop(0) if left and holds(call) else None

    world.brokers.control(ApiKey.PRODUCE, control)


def lose_response(world: "TransactionWorld", host: str, value: bytes) -> None:
    """A client's connections are cut with the next bytes that it receives once a broker has a record of its."""

    def control(call: Call) -> None:
        if value in values(call):
            for link in world.network.live(LEG):
                if link.hosts[0] == host:
                    link.cut_after(1, answers=True)

    world.brokers.control(ApiKey.PRODUCE, control)


async def goes_well(step: Awaitable[object]) -> bool:
    """Whether a step of a producer ends without an error."""
    try:
        await step
    except (Abortable, Fatal):
        return False
    return True


def next_generation(world: "TransactionWorld", group_id: str, member_id: str) -> int:
    """A group goes over to one member; the generation."""
    group = world.brokers.groups.setdefault(group_id, Group(group_id))
    now = world.brokers.clock()
    member = Member(member_id, None, member_id, "10.0.0.9", _SESSION_MS, _SESSION_MS, now, [("range", b"")])
    group.members = {member_id: member}
    group.leader, group.protocol_type, group.protocol = member_id, "consumer", "range"
    group.state, group.generation = GroupState.STABLE, group.generation + 1
    world.history.note(f"{group_id} is at generation {group.generation}")
    return group.generation


def forget(world: "TransactionWorld", topic: str = LOG) -> None:
    """A topic's partitions forget all producers, as if what they wrote were a day old."""
    for partition in world.brokers.topics[topic].partitions:
        partition.log.producers = ProducerStates(check_ms=world.plan.expiry_check_ms)


async def expire(world: "TransactionWorld", index: int, transactional_id: str) -> None:
    """A kproxy gives an id up, as if nothing had been asked of it for a week."""
    transactions = world.instances[index].transactions
    assert transactions is not None
    view = transactions.views.of(transactional_id)
    assert view is not None
    assert view.claim is not None
    await transactions.log.append_unfenced(Entry(transactional_id, TransactionExpiry(view.claim.nonce)))


async def take_snapshots(world: "TransactionWorld", index: int, chunk_bytes: int) -> None:
    """A kproxy takes snapshots of all of the transaction log."""
    transactions = world.instances[index].transactions
    assert transactions is not None
    async with trio.open_nursery() as nursery:
        for partition in range(len(world.brokers.topics[LOG].partitions)):
            nursery.start_soon(transactions.snapshots.take, partition, chunk_bytes)
