"""Requests to kproxies by the control API: answers get lost, requests come late, and a kproxy dies over them."""

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Final, TypeAlias

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.control_service import ControlService
from kproxy.txn.described import Described
from kproxy.txn.txn_error import TxnError
from verification.simulation import invariants
from verification.simulation.history import History
from verification.simulation.instance import Instance
from verification.simulation.plan import BUSY_SECONDS

Ask: TypeAlias = Callable[[ControlService], Awaitable[Described]]

#: As long as a request is in flight.
_WAYS: Final = (0.0, 0.001, 0.02)
_BACKOFFS: Final = (0.02, 0.1, 0.5)
#: No request takes longer, whatever becomes of brokers.
_ANSWERED: Final = 300.0


class Unheard(Exception):
    """No response came; the request may have been done, or may yet come."""


class Refused(Exception):
    """An error that says more than "ask again"."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(f"{code.name}: {why}")
        self.code = code


class Request:
    """One request in flight."""

    def __init__(self, ask: Ask) -> None:
        """Nothing has come to a kproxy yet."""
        self.ask = ask
        self.sent_at = trio.current_time()
        #: By trio's clock; None: it may yet change something.
        self.over_at: float | None = None
        self.found: Described | None = None
        self.error: TxnError | None = None
        self.answered = trio.Event()


class ControlPost:
    """Carries requests of all groups to kproxies."""

    def __init__(self, instances: Sequence[Instance], nursery: trio.Nursery, history: History, rng: Random) -> None:
        """Requests outlive in ``nursery`` who sent them."""
        self._instances = instances
        self._nursery = nursery
        self._history = history
        self._rng = rng
        #: The time that each of the next requests is in flight, in seconds.
        self.late: list[float] = []
        #: The number of the next responses that are lost.
        self.lost = 0

    def send(self, index: int, ask: Ask) -> Request:
        """Sends one; its response comes to it, or does not."""
        request = Request(ask)
        self._nursery.start_soon(self._carry, index, request)
        return request

    async def _carry(self, index: int, request: Request) -> None:
        if self.late and self._is_busy:
            late = self.late.pop()
            self._history.note(f"a control request is held up for {late:.3f} s")
            await trio.sleep(late)
        await trio.sleep(self._rng.choice(_WAYS))
        instance = self._instances[index]
        if not instance.up or instance.nursery is None or instance.transactions is None:
            request.over_at = trio.current_time()
            request.answered.set()
            return
        instance.nursery.start_soon(self._serve, instance.transactions.control, request)

    @property
    def _is_busy(self) -> bool:
        """Whether faults strike: later, all requests are carried."""
        return trio.current_time() <= BUSY_SECONDS

    async def _serve(self, control: ControlService, request: Request) -> None:
        """Serves a request in the kproxy, and dies with that."""
        try:
            with trio.move_on_after(_ANSWERED) as scope:
                try:
                    request.found = await request.ask(control)
                except TxnError as error:
                    request.error = error
            if scope.cancelled_caught:
                self._history.breaks(invariants.ANSWERED, "a control request has no answer")
        finally:
            request.over_at = trio.current_time()
            if self.lost and self._is_busy and (request.found or request.error):
                self.lost -= 1
                self._history.note("the answer to a control request is lost")
            else:
                request.answered.set()


async def answer_of(request: Request, seconds: float) -> Described:
    """The response within so many seconds. ``TxnError``; ``Unheard``."""
    with trio.move_on_after(seconds):
        await request.answered.wait()
    if request.answered.is_set() and request.error is not None:
        raise request.error
    if not request.answered.is_set() or request.found is None:
        raise Unheard
    return request.found


class ControlClient:
    """The control API's client of one group; patient, as the client of a query is."""

    def __init__(self, post: ControlPost, timeout: float, rng: Random, say: Callable[[str], None]) -> None:
        """``timeout`` of each request, in seconds; ``say`` notes what happens."""
        self._post = post
        self._timeout = timeout
        self._rng = rng
        self._say = say

    async def ask(
        self, what: str, places: Sequence[int], make: Callable[[], Ask], patience: float, sent: list[Request]
    ) -> Described:
        """Asks one of some kproxies until there is a response; ``make`` makes each request, which goes to ``sent``.

        ``Refused``: an error that another request will not mend; ``Unheard``: nothing else for so many seconds.
        """
        deadline = trio.current_time() + patience
        while True:
            index = self._rng.choice(places)
            self._say(f"asks kproxy-{index}: {what}")
            sent.append(self._post.send(index, make()))
            try:
                return await answer_of(sent[-1], self._timeout)
            except Unheard:
                self._say(f"has no answer to {what}")
            except TxnError as error:
                code = ErrorCode(error.error_code)
                self._say(f"receives {code.name} for {what}: {error.message}")
                if not code.retriable:
                    raise Refused(code, error.message) from None
            if trio.current_time() > deadline:
                raise Unheard(what)
            await trio.sleep(self._rng.choice(_BACKOFFS))
