"""One kproxy that makes transactions for clients without transactions, with the product's own procedures."""

from collections.abc import Sequence
from typing import Final

from kproxy.dedup.repeats import ReceivedBatch, Repeats
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.no_transaction import NoTransaction
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.procedures.application_transactions import ApplicationTransactions
from kproxy.txn.procedures.captured import Captured, ImplicitTransaction, write_captured
from kproxy.txn.procedures.hand_control import HandControl, not_in_log
from kproxy.txn.procedures.log_control import LogControl
from kproxy.txn.procedures.managed_outside import ManagedTools
from kproxy.txn.procedures.managed_transactions import ManagedTransactions
from kproxy.txn.procedures.member_control import MemberControl
from kproxy.txn.procedures.members import MakersByRule, Members, PlainMembers
from kproxy.txn.procedures.single_requests import SingleRequests
from kproxy.txn.requests import ClientBatch, Written
from kproxy.txn.view import IdView
from verification.explorer.engine import Event
from verification.explorer.instance import Instance, report
from verification.explorer.member_makers import makers_of
from verification.explorer.world import World

_MOST_UNPACKED: Final = 1 << 20
_TIMEOUT_MS: Final = 60_000
#: A client whose OffsetCommits end transactions.
APPLICATION: Final = "application"


class Compared:
    """``procedures.managed_outside.RepeatedRecords``, by the product's own ``Repeats``."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._repeats = Repeats(_MOST_UNPACKED)

    def came(self, connection: int, batches: Sequence[ClientBatch], arrival_ms: int) -> bool:
        """Do as the product does."""
        found = (ReceivedBatch(batch.topic, batch.partition, batch.batch, arrival_ms) for batch in batches)
        return self._repeats.came(connection, found)


class HandPorts:
    """``procedures.log_control.LogPorts`` of one instance; no broker keeps members' data."""

    def __init__(self, instance: "Managing") -> None:
        """Ask one instance."""
        self._instance = instance
        self.instance_id = instance.name
        self.view_of = instance.views.of
        self.open_here = instance.begun.open_here

    async def found(self, name: str) -> IdView:
        """Return the view of an id."""
        view = await self.read(name)
        if view is None:
            raise not_in_log(name)
        return view

    async def read(self, name: str) -> IdView | None:
        """Read the log, as the product does."""
        return await self._instance.jobs.run(lambda: self._instance.read_to_end(name))

    async def refresh(self, name: str | None) -> None:
        """All that is written is read at once."""

    def names(self) -> Sequence[str]:
        """Nobody asks for them."""
        return ()

    async def initialize(self, name: str, timeout_ms: int, client_id: str) -> None:
        """Take an id, as the product does."""
        await self._instance.requests.init_producer_id(name, timeout_ms, NOBODY, client_id)

    async def decide(self, name: str, owner: Producer | None, *, committed: bool, also: DecisionScope) -> None:
        """Decide prepared parts, as the product does."""
        owners = self._instance.owners
        await self._instance.jobs.run(lambda: owners.decide(name, owner, committed=committed, also=also))

    async def check_members(self, view: IdView, also: DecisionScope) -> None:
        """Return at once: no broker can have aborted any."""

    async def finish_members(self, name: str) -> None:
        """Return at once: no broker has any."""


class Managing(Instance):
    """All that a kproxy has which makes transactions for clients, in either home."""

    #: Where the connections of clients go.
    begun: ManagedTransactions
    single: SingleRequests
    control: HandControl

    def prepare(self) -> ManagedTools:
        """Begin with nothing for any client."""
        tools = ManagedTools(self.requests, lambda _: Compared(), self.name, self.world.time, report)
        self.begun = ManagedTransactions(tools)
        #: Clients whose name begins so write each request in a transaction of its own.
        self.single = SingleRequests(tools, ("single*",), _TIMEOUT_MS)
        return tools

    def look(self) -> None:
        """Do what is done every second."""
        super().look()
        self.begun.look()

    def kept(self) -> object:
        """Return what it has begun for clients."""
        return self.begun, self.single, self.control

    def of_application(self, client_id: str) -> ImplicitTransaction | None:
        """Return the transaction of an application (``on.offset.commit``)."""
        return None

    async def write(self, client_id: str, connection: int, batches: Sequence[ClientBatch]) -> Sequence[Written]:
        """Write a Produce request, as a session of the product has it written."""
        begun = self.begun.of(client_id) or self.of_application(client_id)
        capture = begun or self.single.of(client_id) or NoTransaction()
        capture.took(connection, answered=True)

        async def read() -> Captured:
            return Captured(batches, refused=False)

        before = Event()
        before.set()
        return await write_captured(capture, connection, 0, read, before, Event())

    def closed(self, connection: int, *, received_all: bool) -> None:
        """Note that a client's connection has ended."""
        self.begun.closed(connection, received_all=received_all)


class ManagedInstance(Managing):
    """One process where kproxy's log decides."""

    def __init__(self, world: World, name: str, life: int = 0) -> None:
        """Begin with nothing for any client."""
        super().__init__(world, name, life)
        tools = self.prepare()
        self.sink.listeners.append(self.begun.view_changed)
        ports, makers = self.prepare_members()
        self.members = Members(self.tools, makers)
        self.control = at_log = LogControl(ports, self.owners, self.begun)
        self.member_control = MemberControl(ports, at_log, self.owners, self.begun, self.members)
        #: Of ``on.offset.commit``.
        self.application = ApplicationTransactions(tools, "id", APPLICATION, _TIMEOUT_MS)

    def prepare_members(self) -> tuple[HandPorts, MakersByRule]:
        """Return the outside of decisions by hand, and what makes members."""
        return HandPorts(self), makers_of(PlainMembers())

    def kept(self) -> object:
        """Return what it has begun for clients."""
        return self.begun, self.single, self.members, self.application

    def of_application(self, client_id: str) -> ImplicitTransaction | None:
        """Return what the one application has open."""
        return self.application.current if client_id == APPLICATION else None

    def again(self) -> Instance:
        """Return the next process, which aborts what nobody can continue."""
        new = super().again()
        new.owners.end_former()
        return new

    def closed(self, connection: int, *, received_all: bool) -> None:
        """Note that a client's connection has ended."""
        super().closed(connection, received_all=received_all)
        self.owners.closed(connection)
        self.application.closed(connection, received_all=received_all)
