"""A driver with prepared parts, or with an open part of its own, while requests are lost and others take the id."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kproxy.txn.requests import ClientBatch, TxnRequest
from kproxy.txn.verdict import Verdict
from verification.explorer import invariants
from verification.explorer.client import Client
from verification.explorer.drivers import Batch, Driver
from verification.explorer.instance import Instance, batch_of
from verification.explorer.scripts import Script, Told, Txn
from verification.explorer.world import PARTITIONS, World


class PreparedWorld(World):
    """Nobody asks for an abort."""

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Parts that were reported as prepared wait for their decision."""
        aborted = {payload for payload, verdict in self.shown() if verdict is Verdict.ABORTED}
        for client in self.clients:
            if type(client) is Driver and (lost := aborted.intersection(*(told.acknowledged for told in client.told))):
                yield invariants.PREPARED, f"{lost} of {client.name} are aborted"


class OpenDriver(Driver):
    """A driver that commits its own open part with the member that has prepared."""

    async def _own_part(self, told: Told) -> None:
        payload = f"{self.number}.own"
        told.sent.append(payload)

        async def ask(instance: Instance, request: TxnRequest) -> None:
            batch = ClientBatch(*PARTITIONS[0], batch_of(f"<{payload}>"), 1, -1)
            await instance.requests.produce(request, [batch], implicit=True, accepted=lambda: None)

        await self._ask(f"write {payload}", ask)
        told.acknowledged.append(payload)


class PreparingScenario(NamedTuple):
    """One small world."""

    name: str
    about: str
    budget: Mapping[str, int]
    batch: Batch = Batch()
    #: Whether the driver's own part stays open, and another producer takes the id.
    is_open: bool = False

    def make(self) -> World:
        """Make the world at its beginning."""
        world = PreparedWorld({"again": 1, **self.budget})
        world.instances = [Instance(world, name) for name in ("ab" if self.is_open else "a")]
        driver = OpenDriver if self.is_open else Driver
        world.clients = [driver(world, 1, self.batch)]
        world.clients[0].start()
        if self.is_open:
            world.open(["client 1 asks a: commit"])
            world.clients.append(Client(world, 2, Script((Txn((1,)),), at=1)))
            world.clients[1].start()
        return world


PREPARING_SCENARIOS: Final = (
    PreparingScenario(
        "prepared, restarted", "the driver is restarted, and the log loses something", {"restart": 1, "lost": 1}
    ),
    PreparingScenario("prepared, killed", "kproxy is killed", {"crash": 1}, Batch(has_own=False)),
    PreparingScenario("prepared by members", "another producer takes the id", {"forget_log": 1}, is_open=True),
)
