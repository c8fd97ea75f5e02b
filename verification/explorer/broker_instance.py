"""One kproxy where the broker decides: its owner of the id, and what that asks of the coordinator and its log."""

from collections.abc import Iterator
from typing import Any, Final

from kproxy.codec.batch import Record
from kproxy.net.txn.log_partition import LogPartition
from kproxy.net.txn.transaction_log import ViewSink
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.procedures.broker_owners import BrokerOwners, BrokerTools
from kproxy.txn.stored_epochs import StoredEpoch, StoredEpochs, encode_key, encode_value
from kproxy.txn.views import Views
from verification.explorer.asking import Requests
from verification.explorer.broker_world import BrokerWorld
from verification.explorer.engine import Event, Move
from verification.explorer.instance import DataConnections, Instance, report
from verification.explorer.world import NAME

_PATIENCE_SECONDS: Final = 30.0
_UNUSED_MS: Final = 604_800_000


class EpochLog:
    """``procedures.kept_epoch.EpochLog``: entries become durable one after the other."""

    enabled = True

    def __init__(self, instance: "BrokerInstance") -> None:
        """Take it as read."""
        self._instance = instance
        self.opened = Event()
        self.opened.set()
        #: Entries that are not durable yet.
        self.pending: list[tuple[StoredEpoch | None, Event]] = []

    async def epochs(self) -> StoredEpochs:
        """Return the one entry that is durable."""
        name, stored = self._instance.name, self._instance.broker.recorded
        found = StoredEpochs(name)
        if stored is not None:
            found.take(Record(0, 0, encode_key(name, NAME), encode_value(stored)))
        return found

    def has_epochs_before(self, recorded_ms: int) -> bool:
        """Nothing is so old."""
        return False

    def put_epoch(self, transactional_id: str, stored: StoredEpoch | None) -> Event:
        """The entry is under way from now on."""
        done = Event()
        self.pending.append((stored, done))
        return done

    def now_ms(self) -> int:
        """Return ms since 1970."""
        return self._instance.world.time.wall_ms()

    def moves(self) -> Iterator[Move]:
        """The next entry is durable."""
        if self.pending:
            yield Move(f"the log takes {_text(self.pending[0][0])}", self._take)

    def _take(self) -> None:
        stored, done = self.pending.pop(0)
        self._instance.broker.recorded = stored
        done.set()

    def given_up(self) -> None:
        """Let what a process that was killed has sent come to the log later, if the world says so."""
        world = self._instance.broker
        for stored, _ in self.pending:
            if world.budget["late_log"]:

                def take(stored: StoredEpoch | None = stored) -> None:
                    world.recorded = stored
                    world.harm()

                world.send(f"the log takes {_text(stored)}, which is late", take, "log", stored)


def make_owners(instance: "BrokerInstance") -> BrokerOwners:
    """The product's owners, without its connections."""
    return BrokerOwners(
        BrokerTools(
            requests=lambda name: Requests(instance, name),
            connections=lambda: DataConnections(instance),
            log=instance.entries,
            stats=TransactionStats(),
            time=instance.world.time,
            report=report,
            alone=instance.alone,
            is_own_topic=lambda _: False,
            patience_s=_PATIENCE_SECONDS,
            unused_ms=_UNUSED_MS,
        )
    )


class BrokerInstance(Instance):
    """One process."""

    def __init__(self, world: BrokerWorld, name: str, life: int = 0) -> None:
        """``life``: how often it was started before."""
        self.world, self.broker, self.name, self.life = world, world, name, life
        self.is_killed, self._nonces, self.writers = False, 0, []
        self.views, self.rejects_read = Views(), 0
        self.reading = LogPartition(0, ViewSink(self.views))
        self.entries = EpochLog(self)
        self.owners: Any = make_owners(self)
        self.take_requests()

    def moves(self) -> Iterator[Move]:
        """Its log takes an entry, or it is killed."""
        yield from self.entries.moves()
        if self.world.budget["crash"]:
            yield Move(f"{self.name} is killed, and started again", self.crash, is_fault=True)

    def again(self) -> "BrokerInstance":
        """The process after this one."""
        self.entries.given_up()
        return type(self)(self.broker, self.name, self.life + 1)


def _text(stored: StoredEpoch | None) -> str:
    return "nothing" if stored is None else f"epoch {stored.upstream.epoch}, {stored.last.name.lower()}"
