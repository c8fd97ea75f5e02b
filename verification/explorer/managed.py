"""Clients that know nothing of transactions, and drivers that have kproxy make a transaction of what they write.

A client repeats each request whose response it has not received, over another connection, and nothing distinguishes the
repeated record from a new one. A driver begins a transaction, has its client write, and commits. What was not
committed it writes again, in the next transaction.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from kproxy.codec.messages import ErrorCode
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.batch_decisions import BatchDecision
from kproxy.txn.procedures.member_control import MemberControl
from kproxy.txn.procedures.members import Joining
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.txn_error import TxnError
from kproxy.txn.verdict import Verdict
from verification.explorer import invariants
from verification.explorer.client import TIMEOUT_MS, Abortable, Client, Fatal
from verification.explorer.client_steps import Make
from verification.explorer.instance import Instance, batch_of
from verification.explorer.managed_instance import ManagedInstance, Managing
from verification.explorer.scripts import Script, Told
from verification.explorer.world import NAME, PARTITIONS, World

#: Errors after which nothing of the transaction is committed, unless another copy of the request was.
_NOT_COMMITTED: Final = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.OPERATION_NOT_ATTEMPTED})


class Plan(NamedTuple):
    """The acts of a driver."""

    #: To how many partitions each batch writes one record.
    records: int = 2
    #: Whether each record is in a request of its own, all to one partition.
    is_apart: bool = False
    #: How often it writes its batch, until it is committed.
    tries: int = 2
    #: Whether its batch is prepared before it is committed.
    prepares: bool = False
    #: Whether it says how many records its client has written, when it prepares a member.
    counts: bool = True
    #: Whether its client writes as a member.
    is_member: bool = False
    #: Whether it takes the id before, from whichever driver has it.
    takes: bool = False
    #: Whether its commits name their batch.
    is_named: bool = True
    #: The number of its instance.
    at: int = 0


class ManagedWorld(World):
    """Whether connections end in good order: as where a load balancer closes them."""

    is_balanced = False

    def facts(self) -> tuple[Any, ...]:
        """Whether something has happened that may cost a client its transaction."""
        return ("harm" in self.budget.taken,)

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Batches that are seen twice, however often they were written, or that are committed and not seen."""
        seen = {payload for payload, verdict in self.shown() if verdict is Verdict.COMMITTED}
        for client in self.clients:
            if isinstance(client, HandDriver):
                whole = [told for told in client.told if seen.issuperset(told.sent)]
                if len(whole) > 1:
                    yield invariants.TWICE, f"the batch of {client.name} is seen {len(whole)} times"
                if client.is_committed and not whole:
                    yield invariants.LOST, f"{client.name} heard that its batch is committed"


class Writing(Client):
    """A client that knows nothing of transactions."""

    world: ManagedWorld

    def __init__(self, world: World, number: int, at: int) -> None:
        """Begin with nothing written."""
        super().__init__(world, number, Script((), at=at))
        self._writes = False
        #: The instance that has its connection.
        self._peer: Managing | None = None

    def may_lose(self, what: str) -> bool:
        """Requests by hand are not repeated, except for those that end something."""
        return what.startswith(("Produce", "commit"))

    def leave(self) -> None:
        """Its connection ends; kproxy notices that later, or not at all."""
        peer, world, connection = self._peer, self.world, self.connection
        if not self._writes or peer is None or peer.is_killed:
            return
        world.budget.taken.add("harm")
        self.connection += 1
        self._peer = None

        def noticed() -> None:
            if not peer.is_killed:
                peer.closed(connection, received_all=world.is_balanced)

        world.send(f"{peer.name} notices that {self.name} has gone", noticed, "gone", connection, peer.life)

    async def _ask(self, what: str, make: Make) -> Any:
        try:
            return await super()._ask(what, make)
        except Fatal:
            if self.refused[1] in _NOT_COMMITTED:
                raise Abortable(what) from None
            raise

    async def _write_records(self, payloads: Sequence[str]) -> None:
        """Write one request, a record to each partition."""
        places = PARTITIONS[: len(payloads)]
        batches = [
            ClientBatch(*place, batch_of(f"<{one}>"), 1, -1) for place, one in zip(places, payloads, strict=True)
        ]
        await self._write_batches(self.name, batches, " ".join(payloads))

    async def _write_batches(self, client: str, batches: Sequence[ClientBatch], what: str) -> None:
        """Write one request as a client of that name; ``what``: its payloads, for traces."""

        async def ask(instance: Instance, request: TxnRequest) -> Sequence[Written]:
            assert isinstance(instance, Managing)
            self._peer = instance
            return await instance.write(client, request.connection, batches)

        self._writes = True
        try:
            rows = await self._ask(f"Produce {what}", ask)
        finally:
            self._writes = False
        if any(row.error_code for row in rows):
            raise Abortable(f"{what}: {rows}")


class HandDriver(Writing):
    """A driver that uses the control API, and its client."""

    def __init__(self, world: World, number: int, plan: Plan) -> None:
        """Begin with nothing asked."""
        super().__init__(world, number, plan.at)
        self.plan = plan
        #: Whether it has heard that its batch is committed.
        self.is_committed = False

    async def _run(self) -> None:
        try:
            for number in range(self.plan.tries):
                if await self._try(number):
                    return
        except Fatal as error:
            self.ended = f"fatal: {error}"

    async def _try(self, number: int) -> bool:
        """Whether the batch is committed, by this try or by one before."""
        told = Told(sent=[f"{self.number}.{record}.{number}" for record in range(self.plan.records)])
        self.told.append(told)
        try:
            await self._begin()
            for request in [told.sent] if not self.plan.is_apart else [[one] for one in told.sent]:
                await self._write_records(request)
                told.acknowledged += request
            if self.plan.prepares:
                await self._hand("prepare", self._prepare)
            told.asked.append(True)
            await self._hand("commit", self._commit)
        except Abortable:
            await self._abort(told)
            return False
        self.is_committed = True
        return True

    async def _hand(self, what: str, do: Any) -> Any:
        async def ask(instance: Instance, _: TxnRequest) -> Any:
            assert isinstance(instance, Managing)
            return await do(instance)

        return await self._ask(f"{what} {len(self.told)}", ask)

    async def _begin(self) -> None:
        if self.plan.takes:
            found = await self._hand(
                "initialize", lambda instance: instance.control.initialize(NAME, self.name, TIMEOUT_MS)
            )
            self.identity = Producer(found.producer_id, found.producer_epoch)
        if self.plan.is_member:
            wanted = Joining(NAME, self._member, self.identity if self.plan.takes else None, self.name, TIMEOUT_MS)
            await self._hand("join", lambda instance: _members_of(instance).begin(wanted))
            return
        found = await self._hand("begin", lambda instance: instance.control.begin(NAME, self.name, TIMEOUT_MS))
        self.identity = Producer(found.producer_id, found.producer_epoch)

    @property
    def _member(self) -> str:
        return f"m{self.number}-{len(self.told)}"

    async def _prepare(self, instance: Managing) -> None:
        if self.plan.is_member:
            await _members_of(instance).prepare(NAME, self._member, self.plan.records if self.plan.counts else None)
        else:
            await instance.control.prepare(NAME, self.identity, self._batch_id)

    @property
    def _batch_id(self) -> str | None:
        return str(self.number) if self.plan.is_named else None

    @property
    def _owner(self) -> Producer | None:
        return self.identity if self.identity != NOBODY else None

    async def _commit(self, instance: Managing) -> None:
        members = [self._member] if self.plan.is_member else []
        await instance.control.commit(BatchDecision(NAME, self._owner, self._batch_id, members))

    async def _abort(self, told: Told) -> None:
        """Abort all; the response says whether a commit that was late came first."""
        asked = BatchDecision(NAME, self._owner, abort_others=True)
        try:
            for _ in range(2):
                found = await self._hand("abort", lambda instance: instance.control.abort(asked))
                if not found.parts:
                    break  # else something was prepared late
        except Abortable:
            return  # nothing is open: a commit that had no response may have been the cause
        told.asked.append(False)
        if found.last is not None and not found.last.committed:
            told.committed = False


def _members_of(instance: Managing) -> MemberControl:
    assert isinstance(instance, ManagedInstance)
    return instance.member_control


class SingleClient(Writing):
    """A client of ``per.request``: each request is a transaction, also each copy of one."""

    def __init__(self, world: World, number: int, at: int = 0) -> None:
        """Begin with nothing written."""
        super().__init__(world, number, at)
        self.name = f"single {number}"
        self._copies = 0

    async def _run(self) -> None:
        try:
            for number in range(2):
                await self._write(number)
        except Fatal as error:
            self.ended = f"fatal: {error}"

    async def _write(self, number: int) -> None:  # type: ignore[override]
        told: list[Told] = []

        async def ask(instance: Instance, request: TxnRequest) -> Sequence[Written]:
            assert isinstance(instance, Managing)
            self._peer = instance
            self._copies += 1
            copy = Told(sent=[f"{self.number}{self._copies}.{record}.0" for record in range(2)], asked=[True])
            self.told.append(copy)
            told.append(copy)
            batches = [
                ClientBatch(*place, batch_of(f"<{one}>"), 1, -1)
                for place, one in zip(PARTITIONS, copy.sent, strict=True)
            ]
            copy.acknowledged += copy.sent
            rows = await instance.write(self.name, request.connection, batches)
            if any(row.error_code for row in rows):
                raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, str(rows))
            return rows

        self._writes = True
        try:
            await self._ask(f"Produce {number}", ask)
        except Abortable:
            told[-1].committed = False
            return
        finally:
            self._writes = False
        told[-1].committed = True
