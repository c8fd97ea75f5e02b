"""The coordinator of a run's transactions, drawn from its seed: kproxy's options, and what can go wrong there."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any, Final

from kproxy.proxy.applications import CommitRule
from kproxy.proxy.coordinator_rules import Home, HomeRule

#: Partitions of kproxy's transaction log.
LOG_PARTITIONS: Final = 2

#: Every kind of fault: those of all runs, what befalls kproxy's log, and what befalls brokers' own coordinators.
FAULTS: Final = (
    "crash",
    "crash",
    "cut",
    "cut_answer",
    "delay",
    "close",
    "half_open",
    "clock",
    "upstream_cut",
    "upstream_delay",
    "upstream_half_open",
    "lost_answer",
    "dropped_answer",
    "slow_broker",
    "not_enough_replicas",
    "after_append",
    "timed_out",
    "stepped_down",
    "leader",
    "broker",
    "controller",
    "disk",
    "lag",
    "log_leader",
    "log_lost",
    "log_unheard",
    "log_slow",
    "forget",
    "forget_log",
    "log_broker",
    "snapshot",
    "late",
    "control_late",
    "control_lost",
    "coordinator",
    "coordinator",
    "loading",
    "markers",
    "native_lost",
    "native_unheard",
    "native_slow",
    "expire_id",
)
#: Kinds that strike only in runs without others, since with others it could not be said what they cause.
LONE_FAULTS: Final = ("no_replicas",)
#: Outages of a kproxy, so long that its clients go elsewhere; in runs whose clients can, or if named.
OUTAGES: Final = ("gone", "frozen", "cut_off")
_OF_COORDINATORS: Final = frozenset(FAULTS[FAULTS.index("coordinator") :])
_OF_THE_LOG: Final = frozenset(
    {"log_leader", "log_lost", "log_unheard", "log_slow", "forget_log", "log_broker", "snapshot"}
)
_OF_THE_CONTROL_API: Final = frozenset({"control_late", "control_lost"})
#: With each jump of a clock brokers' own transactions would be overdue, or never.
_CLOCKS: Final = frozenset({"clock"})
#: Faults of kproxy and its clients, and of no broker.
_OF_CLIENTS: Final = frozenset({"crash", "cut", "cut_answer", "delay", "close", "half_open", "late"})
#: Of producers that know nothing of transactions, by their client.ids.
_LEGACY: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "on_offset_commit": (CommitRule("app-*"),),
        "on_offset_commit_timeout_ms": 12_000,
        "per_request": ("single-*",),
        "transaction_max_timeout_ms": 30_000,
    }
)
_NOT_AT: Final[Mapping[Home, frozenset[str]]] = MappingProxyType(
    {
        Home.KPROXY: _OF_COORDINATORS,
        Home.BROKER: _CLOCKS,
        Home.BROKER_FENCED: _OF_THE_LOG | _OF_THE_CONTROL_API | _CLOCKS,
    }
)
#: All that runs can have.
HOMES: Final = tuple(_NOT_AT)
#: Homes in which there may be drivers with members and prepared parts.
MEMBER_HOMES: Final = frozenset({Home.KPROXY, Home.BROKER})


@dataclass(frozen=True, slots=True)
class HomePlan:
    """The coordinator of one run's transactions."""

    home: Home = Home.KPROXY
    #: The level of transactions that the brokers have agreed on (``transaction.version``, KIP-890).
    transaction_version: int = 2

    @property
    def is_native(self) -> bool:
        """Whether the brokers decide, so that who reads needs no kproxy."""
        return self.home.is_broker

    def continues(self, faults: Iterable[str]) -> bool:
        """Whether a kproxy that is started again continues for its clients, whatever else befalls it.

        While brokers are away its log is slow, and what it sent before may come late.
        """
        return self.home is Home.BROKER_FENCED and _OF_CLIENTS.issuperset(faults)

    @property
    def options(self) -> Mapping[str, Any]:
        """Options of kproxy."""
        options = {
            "transactions_home": (HomeRule("*", self.home),),
            "transaction_state_log_num_partitions": LOG_PARTITIONS,
        }
        return {**options, **_LEGACY} if self.home is Home.BROKER else options


#: As in a run made by hand, unless it says otherwise.
AT_KPROXY: Final = HomePlan()


def draw_home(seed: int, homes: Sequence[Home], transaction_versions: Sequence[int]) -> HomePlan:
    """The home of a seed; by draws of its own, so that all else of a plan is the same in any home."""
    rng = Random(f"home {seed}")
    return HomePlan(rng.choice(homes), rng.choice(transaction_versions))


def faults_of(home: Home, wanted: Sequence[str]) -> tuple[str, ...]:
    """The wanted kinds of faults that there are at a home."""
    return tuple(name for name in wanted if name not in _NOT_AT[home])


def lone_faults_of(home: Home) -> tuple[str, ...]:
    """The kinds of ``LONE_FAULTS`` that there are at a home: brokers time their own transactions out."""
    return () if home.is_broker else LONE_FAULTS
