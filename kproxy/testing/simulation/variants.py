"""Broken on purpose: kproxy without one of its rules, and the runs that are suited to show what the rule keeps out.

A simulation that finds nothing is worth only as much as what it would have found.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch

from kproxy.dedup.digest import Digest
from kproxy.dedup.doubts import Doubts
from kproxy.dedup.entries import Answer, Entry
from kproxy.dedup.member import Member
from kproxy.dedup.rules import Rules
from kproxy.net import connection
from kproxy.net.broker_log import BrokerLog
from kproxy.net.lane_log import LaneLog
from kproxy.proxy import calls
from kproxy.testing.simulation.invariants import DUPLICATE, MERGED, OFFSETS, ORDER
from kproxy.testing.simulation.plan import Taste

Change = tuple[Any, str, Callable[..., Any]]
"""An owner, the name of a function of it, and what to put in its place."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One rule less."""

    #: What becomes of the rule.
    name: str
    changes: tuple[Change, ...]
    taste: Taste
    #: The invariants of which one breaks.
    breaks: tuple[str, ...] = (DUPLICATE,)
    #: So many seeds show it at most.
    seeds: int = 100

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Without the rule until the block ends."""
        with ExitStack() as stack:
            for owner, name, function in self.changes:
                stack.enter_context(patch.object(owner, name, function))
            yield


def _no(*_: Any, **__: Any) -> bool:
    return False


def _yes(*_: Any, **__: Any) -> bool:
    return True


async def _nothing(*_: Any, **__: Any) -> None:
    pass


def _keep_nothing(*_: Any, **__: Any) -> None:
    pass


def _only_late(_: Rules, answer: Answer) -> bool:
    return answer.at > answer.due


def _any_time(_: Rules, entry: Entry, ours: Digest, theirs: Digest, now: float) -> bool:
    return True


def _everybody_ends(self: Doubts, now: float) -> None:
    for member in self.members[:-1]:
        member.end(now)


def _base(offsets: list[int], *, whole: bool) -> int:
    return offsets[0]


_PATIENT: Final = Taste(tries=(12,), acks=(-1,), closes_on_timeout=(True,), fault_count=(8, 12))
_CUTS: Final = replace(_PATIENT, faults=("cut", "cut_answer", "close"))
_TIMES: Final = replace(_PATIENT, faults=("slow_broker", "dropped_answer", "upstream_delay"))
_STAYS: Final = replace(_PATIENT, faults=("slow_broker", "dropped_answer"), closes_on_timeout=(False,), depths=(1,))
_CRASHES: Final = replace(_PATIENT, faults=("crash", "slow_broker"))
_EQUAL: Final = replace(_CUTS, equal=0.8, versions=(2, 5, 8), twins=0.6)

VARIANTS: Final = (
    Variant("a retry of a batch that is open does not wait for it", ((Rules, "joins_open", _no),), _TIMES),
    Variant("what was matched is in doubt no more", ((Rules, "stays_in_doubt", _no),), _CUTS),
    Variant("an answer that was written was had", ((Rules, "had_by_time", _yes),), _CUTS),
    Variant(
        "a request behind the end of its connection is always written",
        ((Rules, "drops_orphan", _no),),
        replace(_PATIENT, faults=("delay",)),
    ),
    Variant(
        "what a client gave up is matched for ever",
        ((Rules, "goes_on_matching", _yes),),
        Taste(
            faults=("slow_broker", "dropped_answer", "close"),
            fault_count=(10, 14),
            equal=0.8,
            depths=(1,),
            tries=(1,),
            acks=(-1,),
            versions=(5, 8),
            batch_sizes=(1,),
            gaps=(0.5,),
            options=(("clients_in_flight", 1),),
        ),
        (ORDER, MERGED),
    ),
    Variant("what timed out does not come again on its connection", ((Member, "_give_up", _keep_nothing),), _STAYS),
    Variant(
        "what succeeded beside an error does not come again",
        ((Rules, "may_repeat", _only_late),),
        Taste(faults=("not_enough_replicas", "broker", "slow_broker"), repeats_whole=(True,), fault_count=(8, 12)),
    ),
    Variant(
        "a batch that was matched in part is answered with a base offset",
        ((calls, "offset_of", _base),),
        _CUTS,
        (OFFSETS,),
    ),
    Variant("records are equal at whatever time", ((Rules, "times_agree", _any_time),), _EQUAL, (MERGED, ORDER)),
    Variant(
        "other connections count as ended", ((Doubts, "_look_for_ends", _everybody_ends),), _EQUAL, (MERGED, ORDER)
    ),
    Variant(
        "records must come in the order of their batch",
        ((Rules, "across_order", _no),),
        replace(_PATIENT, faults=("crash",), equal=0.5, batch_sizes=(4,), instances=(1,)),
        seeds=300,
    ),
    Variant("what is in doubt is forgotten at once", ((Rules, "expired", _yes),), _CUTS),
    Variant(
        "a host has several names",
        ((connection, "normal_host", str),),
        replace(_CUTS, renames=(True,)),
    ),
    Variant("producer ids are used before they are noted", ((LaneLog, "record", _nothing),), _CRASHES),
    Variant("the log is read without a fence", ((BrokerLog, "fence", _nothing),), _CRASHES),
)
