"""Producers that know nothing of transactions, modelled: by hand, and each request for itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.txn.described import Described, OwnerId
from kproxy.txn.ids import TXN_CLIENTS
from verification.simulation.transactions import invariants
from verification.simulation.transactions.batches import plain_request
from verification.simulation.transactions.calls import LOST, Calls
from verification.simulation.transactions.control_calls import Ask, ControlClient, Refused, Request, Unheard
from verification.simulation.transactions.coordinators import Fatal
from verification.simulation.transactions.history import Claimed, TransactionHistory
from verification.simulation.transactions.member_writer import MemberWriter, WriteFailed
from verification.simulation.transactions.plan import ProducerPlan
from verification.simulation.transactions.process import Abortable

#: The time for which a client asks the control API, in seconds.
_PATIENCE: Final = 15.0
_TRIES: Final = 5
_PAUSE: Final = 0.5
_PRODUCE: Final = 7
#: Errors for a transaction that kproxy does not have open any more.
_OVER: Final = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND})
_ABORTED: Final = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.OPERATION_NOT_ATTEMPTED})


@dataclass(slots=True)
class LegacyTools:
    """The tools of a process that knows nothing of transactions."""

    plan: ProducerPlan
    #: In the trace, and before the names of its transactions.
    name: str
    #: The kproxy that it asks.
    instance: int
    #: Connections of a client.id; ``patient`` ones wait long for a response.
    calls: Callable[[str, float], Calls]
    control: ControlClient
    history: TransactionHistory
    rng: Random
    #: Numbers that no producer has.
    numbers: Callable[[], int]

    def say(self, text: str) -> None:
        """Notes what it does."""
        self.history.note(f"producer {self.name} {text}")

    def open(self, what: str, number: int | None = None) -> Claimed:
        """A new transaction; it follows those of the same ``number``, its plan's if not given."""
        number = self.plan.number if number is None else number
        return self.history.open(f"{self.name}.{what}", number, self.plan.transactional_id)


class Legacy:
    """The common steps of processes that know nothing of transactions."""

    def __init__(self, tools: LegacyTools) -> None:
        """Nothing is connected yet."""
        self._tools = tools
        self.say = tools.say
        self._calls: list[Calls] = []

    def _connected(self, client_id: str, timeout: float | None = None) -> Calls:
        calls = self._tools.calls(client_id, timeout or self._tools.plan.request_timeout)
        self._calls.append(calls)
        return calls

    async def initialize(self, *, again: bool = False) -> None:
        """Nothing has to be asked for."""

    def begin(self, nth: int) -> Claimed:
        return self._tools.open(str(nth))

    def killed(self) -> None:
        self.say("is killed")

    def close(self) -> None:
        for calls in self._calls:
            calls.close()


class ByHand(Legacy):
    """The operator of the producer says where its transactions begin and end; each is one of a new client.id.

    As the Python client does over a Unix socket, it does not begin while something that it has asked may still come. A
    beginning that has no response it repeats at once.
    """

    def __init__(self, tools: LegacyTools) -> None:
        super().__init__(tools)
        self._sent: list[Request] = []
        self._unheard: list[Request] = []
        """Beginnings before the answered one. One of them that comes later is a new producer's, and fences it."""
        self._began_at = 0.0
        self._client_id = ""
        self._begun = 0
        self._writer: MemberWriter | None = None
        self._owner = OwnerId(-1, -1)
        """The owner of its transaction: kproxy refuses a late commit, whose id another one has by then."""

    async def write(self, claimed: Claimed, batches: Sequence[tuple[int, int]]) -> None:
        """Writes records; repeats nothing."""
        if not claimed.begun:
            await self._begin_by_hand()
            claimed.begun = True
        assert self._writer is not None
        try:
            await self._writer.write(claimed, batches)
        except WriteFailed as error:
            raise Abortable(str(error)) from error

    async def _begin_by_hand(self) -> None:
        tools, plan = self._tools, self._tools.plan
        tid, timeout_ms = plan.transactional_id, plan.timeout_ms

        def make() -> Ask:
            self._begun += 1
            self._client_id = client_id = f"{TXN_CLIENTS}{tools.name}-{self._begun}"
            return lambda control: control.begin(client_id=client_id, transactional_id=tid, timeout_ms=timeout_ms)

        for _ in range(_TRIES):
            await self._through()
            try:
                self._owner = (await self._ask("begin", make)).owner
                self._unheard, self._began_at = self._sent[:-1], trio.current_time()
            except Refused as error:
                if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    raise self._over(error) from error
                await self._abort_what_is_open()
            except Unheard:
                self.say("gives the beginning up")
            else:
                self._writer = MemberWriter(
                    self._connected(self._client_id), tools.history, tools.say, stubborn=plan.renews
                )
                return
            await trio.sleep(_PAUSE)
        raise Fatal("nothing can be begun")

    async def _through(self) -> None:
        """Waits until nothing that was asked may still come."""
        while any(request.over_at is None for request in self._sent):  # noqa: ASYNC110 - as a kproxy dies, too
            await trio.sleep(_PAUSE)
        self._sent.clear()

    async def _ask(self, what: str, make: Callable[[], Ask]) -> Described:
        return await self._tools.control.ask(what, [self._tools.instance], make, _PATIENCE, self._sent)

    async def _abort_what_is_open(self) -> None:
        """A beginning whose response was lost, or somebody else's."""
        tid = self._tools.plan.transactional_id
        try:
            owner = (await self._ask("describe", lambda: lambda control: control.describe(tid))).owner
            await self._ask("abort", lambda: lambda control: control.abort(tid, owner=owner))
        except (Refused, Unheard) as error:
            self.say(f"can't abort what is open: {error}")

    def _over(self, error: Refused) -> Fatal:
        self._judge(error)
        return Fatal(str(error))

    def _judge(self, error: Refused) -> None:
        """Notes an error that it should not get."""
        history, mine = self._tools.history, self._tools.plan.transactional_id
        is_shared = error.code is ErrorCode.PRODUCER_FENCED and mine in history.shared
        is_late = error.code is ErrorCode.PRODUCER_FENCED and any(
            request.over_at is None or request.over_at > self._began_at for request in self._unheard
        )
        is_expired = error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING and mine in history.expired
        if error.code not in _OVER and not (is_shared or is_late or is_expired):
            history.breaks(invariants.CAUSE, f"producer {self._tools.name} receives {error}")

    async def end(self, claimed: Claimed, *, committed: bool) -> None:
        """Ends the transaction; it counts as lost if it is not reported as committed."""
        if not claimed.begun:
            return
        tools, tid, batch_id, owner = self._tools, self._tools.plan.transactional_id, claimed.name, self._owner
        if committed:
            tools.history.asks(claimed)
        try:
            if committed:
                await self._ask(
                    f"commit {claimed.name}",
                    lambda: lambda control: control.commit(tid, batch_id=batch_id, owner=owner),
                )
            else:
                await self._ask(f"abort {claimed.name}", lambda: lambda control: control.abort(tid, owner=owner))
        except Refused as error:
            if error.code is ErrorCode.TRANSACTION_ABORTABLE:
                claimed.told = False
            elif error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:  # one that had no response is under way
                self._judge(error)
        except Unheard:
            self.say(f"does not hear what becomes of {claimed.name}")
        else:
            claimed.told = committed
            self.say(f"learns that {claimed.name} is {'committed' if committed else 'aborted'}")


class PerRequest(Legacy):
    """Each request is a transaction of its own; what has no response, or an error, is not sent again.

    What has no response may come late: so only those are in order that had all had theirs.
    """

    def __init__(self, tools: LegacyTools) -> None:
        super().__init__(tools)
        self._client = self._connected(f"single-{tools.plan.number}")
        self._number = tools.numbers()

    async def write(self, claimed: Claimed, batches: Sequence[tuple[int, int]]) -> None:
        """Writes records in one request."""
        history = self._tools.history
        one = self._tools.open(f"{claimed.name.rpartition('.')[2]}+{len(history.transactions)}", self._number)
        one.begun = True
        history.asks(one)
        values = {place: history.values(one, place, count, late=False) for place, count in batches}
        place = min(values)
        self.say(f"sends {one.name} to {sorted(values)}")
        try:
            leader = await self._client.leader(place)
            answer: Any = await self._client.ask(leader, plain_request(values), _PRODUCE)
        except LOST as error:
            self.say(f"has no answer to {one.name}: {error!r}")
            self._client.forget(place)
            self._number = self._tools.numbers()
            return
        rows = {row.index: row for row in answer.responses[0].partition_responses}
        codes = {row.error_code for row in rows.values()}
        if codes == {0}:
            one.told = True
            for at, some in values.items():
                history.acknowledges(one, at, some, rows[at].base_offset)
            return
        self.say(f"receives {' '.join(ErrorCode(code).name for code in sorted(codes))} for {one.name}")
        if codes <= _ABORTED:
            one.told = False
        self._client.forget(place)

    async def end(self, claimed: Claimed, *, committed: bool) -> None:
        """Each request has ended by itself."""
