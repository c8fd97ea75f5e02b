"""One kproxy whose members have transactions at the broker, with the product's own procedures."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Final

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec._generated.transaction_ended import TransactionEnded
from kproxy.txn.log_records import Entry
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.procedures.broker_ends import BrokerEnds, _Left
from kproxy.txn.procedures.broker_members import BrokerMemberPorts, BrokerMembers
from kproxy.txn.procedures.member_ids import MemberIds
from kproxy.txn.procedures.members import MakersByRule
from kproxy.txn.procedures.outside import Work
from kproxy.txn.procedures.votes import Votes
from kproxy.txn.view import IdView
from verification.explorer.asking import Requests
from verification.explorer.engine import Clock, Move, Step
from verification.explorer.instance import Instance, report
from verification.explorer.managed_instance import HandPorts, ManagedInstance, Managing
from verification.explorer.member_makers import makers_of
from verification.explorer.member_world import LONGEST_MS

_PATIENCE_SECONDS: Final = 30.0
#: From one look at what others have decided to the next: longer than they are left alone with it.
_BETWEEN_LOOKS: Final = 20.0


class Due(Step):
    """Waits for the next look, which comes when there is something to be done."""

    def __init__(self, text: str, is_due: Callable[[], bool]) -> None:
        """``text`` names the look."""
        super().__init__("due", text)
        self._text, self._is_due = text, is_due

    def moves(self) -> Iterator[Move]:
        """Yield it."""
        assert self.task is not None
        if self._is_due():
            yield Move(self._text, self.task.resume)


class RestingIds(Clock):
    """The time of ``BrokerMembers``: a second passes where an id rests."""

    def __init__(self, instance: "MemberInstance") -> None:
        """Look at the ids of an instance."""
        super().__init__(instance.world.engine)
        self._instance = instance

    async def sleep(self, seconds: float) -> None:
        """Wait for the next look."""
        await Due(f"{self._instance.name} looks for ids that rest", self._are_any)

    def _are_any(self) -> bool:
        slots = self._instance.slots
        return any(name in slots._unfenced for name in slots._free)


class Tasks:
    """``procedures.outside.SideBySide``; those that are waited for run in turn."""

    def __init__(self, instance: Instance, what: str) -> None:
        """``what`` names them."""
        self._instance, self._name = instance, f"{instance.name}'s {what}"

    async def all(self, works: Sequence[Work]) -> None:
        """Perform them."""
        for work in works:
            await work()

    def open(self) -> Any:
        """Return what begins one."""
        return nullcontext(self._start)

    def _start(self, work: Work) -> None:
        self._instance.world.engine.start(self._name, self._instance, _perform(work))

    def place(self) -> Any:
        """Return at once: there is always one."""
        return nullcontext()


class MemberPorts(HandPorts):
    """``procedures.log_control.LogPorts`` where brokers keep members' data."""

    def __init__(self, instance: Managing, votes: Votes, ends: BrokerEnds) -> None:
        """Ask one instance, and the brokers."""
        super().__init__(instance)
        self._votes, self._ends = votes, ends

    async def check_members(self, view: IdView, also: DecisionScope) -> None:
        """Ask the brokers, as the product does."""
        await self._votes.check(view, also)

    async def finish_members(self, name: str) -> None:
        """Tell the brokers, as the product does."""
        await self._ends.finish(name)


class MemberInstance(ManagedInstance):
    """One process; it reads what it has written at once, and does not wait where there is nothing to be read.

    Orders in which others write meanwhile are explored without brokers.
    """

    def prepare_members(self) -> tuple[HandPorts, MakersByRule]:
        """Return the outside of decisions by hand, and what makes members."""
        world, stats = self.world, self.tools.stats
        self.slots = MemberIds(self.name, self._producer_id, world.time)
        self.sink.listeners.append(self.slots.view_changed)
        ports = BrokerMemberPorts(self.ask, self._longest_ms, Unpaused)
        makes = BrokerMembers(ports, self.slots, _PATIENCE_SECONDS, RestingIds(self), Tasks(self, "fence"))
        self._looks = Clock(world.engine)
        at = (self.name, _PATIENCE_SECONDS, self._looks, Tasks(self, "end"), report)
        self.member_ends = BrokerEnds(self.ask, self, stats, *at)
        votes = Votes(self.ask, self._describes, self._now_ms, _together)
        world.engine.start(f"{self.name}'s ends", self, self.member_ends.run())
        world.engine.start(f"{self.name}'s ids", self, makes.run())
        return MemberPorts(self, votes, self.member_ends), makers_of(makes)

    def ask(self, transactional_id: str) -> Requests:
        """Return the requests about an id of the broker's."""
        return Requests(self, transactional_id)

    async def _longest_ms(self, transactional_id: str) -> int:
        return LONGEST_MS

    async def _describes(self) -> bool:
        return True

    async def _now_ms(self, transactional_id: str) -> float:
        return self.world.time.wall_ms()

    def kept(self) -> object:
        """Return what it has begun for clients, and at brokers."""
        return super().kept(), self.slots, self.member_ends

    def moves(self) -> Iterator[Move]:
        """Yield that it reads of an end, or of what there is to be ended."""
        yield from super().moves()
        unread = (entry.body for entry, _ in self.world.log[self.position :])
        if any(isinstance(body, TransactionEnded | TransactionDecision | TransactionClaim) for body in unread):
            yield Move(f"{self.name} follows the log", self.read)

    # -- ``procedures.outside.PacedLog``

    async def read_to_end(self, transactional_id: str) -> IdView | None:
        """Do as the product does."""
        if self.position == len(self.world.log):
            return self.views.of(transactional_id)
        return await super().read_to_end(transactional_id)

    async def append(self, entry: Entry, producer_id: int, epoch: int, sequence: int) -> None:
        """Do as the product does."""
        await self.append_unread(entry, producer_id, epoch, sequence)
        self.read()

    async def pause(self, seconds: float) -> None:
        """Wait for the next look at what has to be ended."""
        await Due(f"{self.name} looks for what has to be ended", self._has_left)
        self._looks.seconds += _BETWEEN_LOOKS

    def _has_left(self) -> bool:
        names = [view.transactional_id for view in self.views.unsettled()]
        return any(self._is_left(left) for name in names for left in self.member_ends._left(name))

    def _is_left(self, left: _Left) -> bool:
        return left not in self.member_ends._busy and left not in self.member_ends._noted


class Unpaused:
    """``procedures.outside.Pauses``."""

    async def pause(self) -> None:
        """Return at once: what is asked next waits for the world."""


async def _together(works: Sequence[Work]) -> None:
    for work in works:
        await work()


async def _perform(work: Work) -> None:
    await work()
