"""Broken on purpose: kproxy without one of its rules, and the runs that are suited to show what the rule keeps out.

A simulation that finds nothing is worth only as much as what it would have found.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch

from kproxy.dedup import identity, retry_ledger, retry_rules
from kproxy.dedup import resend as resend_core
from kproxy.dedup.lanes import LanePool, Track
from kproxy.dedup.producer_connection import ProducerConnection
from kproxy.dedup.quick_check import QuickCheck
from kproxy.dedup.refused import AwaitedRetry, Refused
from kproxy.dedup.retry_ledger import RetryLedger
from kproxy.dedup.retry_rules import Rules
from kproxy.net import recovery
from kproxy.net import track_resend as resend_shell
from kproxy.net.broker_log import BrokerLog
from kproxy.net.broker_log_batches import LAST
from kproxy.net.broker_log_tail import Tail
from kproxy.net.connection import Connection
from kproxy.net.end_watch import EndWatch
from kproxy.net.fleet import Fleet
from kproxy.net.intake import Intake
from kproxy.net.lane_leases import Lanes
from kproxy.net.lane_log import LaneLog
from kproxy.net.retry_ledger_keeper import RetryLedgerKeeper
from kproxy.proxy import produce_calls, reading, refusals, retries
from kproxy.proxy.produce_gate import ProduceGate
from kproxy.proxy.retries import Retries
from verification.simulation import broken_rules, scripts
from verification.simulation.invariants import ALTERED, AWAKE, DUPLICATE, LOST, MERGED, OFFSETS, ORDER, UNANSWERED
from verification.simulation.plan import GZIP, Plan
from verification.simulation.tastes import FLEET, LABELS, WIDE, Taste, make_plan

Change = tuple[Any, str, Any]
"""An owner, the name of a function or property of it, and what to put in its place."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One rule less."""

    #: The name of the change.
    name: str
    changes: tuple[Change, ...]
    #: Of a taste, or made by hand.
    runs: Taste | Callable[[int], Plan]
    #: The invariants of which one breaks.
    breaks: tuple[str, ...] = (DUPLICATE,)
    #: So many seeds show it at most.
    seeds: int = 100
    #: A seed that showed it when this was written: it is tried first.
    first: int = 0
    #: Another rule that is taken away both times, since either of the two is enough.
    beside: tuple[Change, ...] = ()

    @property
    def tried(self) -> Iterator[int]:
        """The seeds in the order in which they are tried."""
        yield from (self.first, *range(self.seeds))

    def plan(self, seed: int) -> Plan:
        """One of the runs."""
        return make_plan(seed, self.runs) if isinstance(self.runs, Taste) else self.runs(seed)

    @contextmanager
    def applied(self, *, changed: bool = True) -> Iterator[None]:
        """Leaves the rule out until the block ends; not ``changed``: keeps it, but leaves out what is ``beside`` it."""
        with ExitStack() as stack:
            for owner, name, new in self.beside + (self.changes if changed else ()):
                stack.enter_context(patch.object(owner, name, new))
            yield


_PATIENT: Final = Taste(tries=(12,), acks=(-1,), closes_on_timeout=(True,), fault_count=(8, 12))
_CUTS: Final = replace(_PATIENT, faults=("cut", "cut_answer", "close"))
_TIMES: Final = replace(_PATIENT, faults=("slow_broker", "dropped_answer", "upstream_delay"))
_STAYS: Final = replace(_PATIENT, faults=("slow_broker", "dropped_answer"), closes_on_timeout=(False,), depths=(1,))
_CRASHES: Final = replace(_PATIENT, faults=("crash", "slow_broker"))
_MOVES: Final = Taste(
    faults=("leader", "leader", "upstream_delay"),
    fault_count=(20, 30),
    depths=(3, 5),
    equal=0.9,
    acks=(-1,),
    tries=(12,),
    versions=(3, 5, 8),
    topics=((),),
    gaps=(0.0, 0.0, 0.5),
    ages=(0.0,),
    repeats_whole=(False,),
    regroup=("same", "split", "join"),
    twins=0.0,
    in_rounds=(True,),
    instances=(1,),
)
_FLEET: Final = replace(FLEET, tries=(12,), acks=(-1,), closes_on_timeout=(True,), fault_count=(8, 12))
_FLEET_CUTS: Final = replace(_FLEET, faults=("cut", "cut_answer", "close"))
_FLEET_TIMES: Final = replace(_FLEET, faults=("slow_broker", "dropped_answer", "upstream_delay", "crash"))
_EQUAL: Final = replace(_CUTS, equal=0.8, versions=(2, 5, 8), twins=0.6)

VARIANTS: Final = (
    Variant("a retry of a batch that is open does not wait for it", ((Rules, "joins_open", broken_rules.no),), _TIMES),
    Variant("what was matched is in doubt no more", ((Rules, "stays_unconfirmed", broken_rules.no),), _CUTS),
    Variant("a response that was written was received", ((Rules, "received_by_time", broken_rules.yes),), _CUTS),
    Variant(
        "a request after the end of its connection is always written",
        ((Rules, "drops_orphan", broken_rules.no),),
        replace(_PATIENT, faults=("delay",)),
    ),
    Variant(
        "a retry comes over a newer connection than what it repeats",
        ((RetryLedger, "is_outrun", broken_rules.newer_only),),
        scripts.led_back,
        seeds=10,
    ),
    Variant(
        "what a client gave up is matched for ever",
        ((Rules, "keeps_matching", broken_rules.yes),),
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
    Variant(
        "what a client had ready when it read an error shows that it gave up the rest",
        ((Rules, "has_one_ready", broken_rules.no),),
        replace(_STAYS, ready=(True,), gaps=(0.0,)),
        beside=((retry_rules, "_TELLING_REQUESTS", 3),),
    ),
    Variant(
        "what timed out is not retried on its connection",
        ((ProducerConnection, "_give_up", broken_rules.keep_nothing),),
        _STAYS,
    ),
    Variant(
        "what succeeded beside an error is not retried",
        ((Rules, "may_repeat", broken_rules.only_late),),
        Taste(faults=("not_enough_replicas", "broker", "slow_broker"), repeats_whole=(True,), fault_count=(8, 12)),
    ),
    Variant(
        "a batch that was matched in part is answered with a base offset",
        ((produce_calls, "offset_of", broken_rules.base),),
        _CUTS,
        (OFFSETS,),
        first=26,
    ),
    *(
        Variant(
            f"what is left of a batch without its retries loses {what}",
            ((Retries, "_rest", broken_rules.rest_with(**{field: value})),),
            replace(_CUTS, labels=LABELS[2:], batch_sizes=(2, 4), regroup=("join",)),
            (ALTERED, LOST),
        )
        for what, field, value in (("headers", "headers", ()), ("keys", "key", None), ("timestamps", "timestamp", 1))
    ),
    Variant(
        "records are equal at whatever time", ((Rules, "times_agree", broken_rules.any_time),), _EQUAL, (MERGED, ORDER)
    ),
    Variant(
        "new timestamps make other records of retries",
        ((Rules, "of", broken_rules.same_rules),),
        replace(_CUTS, renews_timestamps=(True,), versions=(2, 5, 8)),
    ),
    Variant(
        "other connections count as ended",
        ((RetryLedger, "prerequisite", broken_rules.everybody_ends),),
        _EQUAL,
        (MERGED, ORDER),
    ),
    Variant(
        "the ends of other connections are not asked for",
        ((EndWatch, "look", broken_rules.keep_nothing),),
        _TIMES,
        first=204,
    ),
    Variant(
        "records must come in the order of their batch",
        ((Rules, "across_order", broken_rules.no),),
        replace(_PATIENT, faults=("crash",), fault_count=(14, 18), equal=0.5, batch_sizes=(4,), instances=(1,)),
        seeds=300,
        first=67,
    ),
    Variant(
        "equal records stay comparable after an end in good order",
        ((Rules, "untimed_until", broken_rules.for_ever),),
        scripts.one_each,
        (LOST, MERGED),
        10,
    ),
    Variant(
        "a client that lost a connection has received nothing over it",
        ((Rules, "surely_not_received", broken_rules.yes),),
        scripts.told_and_cut,
        (MERGED,),
        10,
    ),
    Variant(
        "any connection of a client.id may bring a retry",
        ((Rules, "is_of_another_program", broken_rules.no),),
        scripts.two_programs,
        (MERGED,),
        10,
    ),
    Variant(
        "a response that was written has arrived",
        ((Rules, "has_arrived", broken_rules.yes),),
        scripts.far_away,
        seeds=10,
    ),
    Variant("what is in doubt is forgotten at once", ((Rules, "expired", broken_rules.yes),), _CUTS),
    Variant(
        "a host has several names",
        ((identity, "normal_host", str),),
        replace(_CUTS, renames=(True,)),
    ),
    Variant("producer ids are used before they are noted", ((LaneLog, "record", broken_rules.nothing),), _CRASHES),
    Variant("the log is read without a fence", ((BrokerLog, "fence", broken_rules.nothing),), _CRASHES),
    Variant(
        "old requests are waited for, not fenced",
        ((BrokerLog, "fence", broken_rules.wait_for_requests),),
        _CRASHES,
        first=54,
    ),
    Variant(
        "a new producer id has several batches in flight",
        ((Track, "has_room", broken_rules.has_room),),
        scripts.overtaken,
        (ORDER,),
        10,
    ),
    Variant(
        "after a silence several batches are in flight at once",
        ((Track, "_may_be_forgotten", broken_rules.no),),
        scripts.forgotten,
        (ORDER,),
        10,
    ),
    Variant(
        "what is not replicated yet is not waited for",
        ((Tail, "_wait", broken_rules.wait_for_nothing),),
        scripts.lagging,
        seeds=10,
        beside=((BrokerLog, "fence", broken_rules.nothing),),  # the response to a marker waits for the replicas, too
    ),
    Variant(
        "what follows a refused batch is stamped again, though it was sent twice",
        ((Track, "may_be_written", property(broken_rules.no)),),
        scripts.refused,
        (DUPLICATE, LOST),
        10,
    ),
    Variant(
        "where the state is lost, all is sent again",
        ((resend_shell, "next_step", broken_rules.bump),),
        scripts.reloaded,
        seeds=10,
    ),
    Variant(
        "a lane goes to another producer as it is",
        ((LanePool, "give_back", broken_rules.hand_on), (Lanes, "give_back", broken_rules.without_rest)),
        scripts.handed_on,
        (MERGED,),
        10,
    ),
    Variant(
        "a lane is noted as given back though a batch is open",
        ((Intake, "end", broken_rules.notes_as_given_back),),
        scripts.left_open,
        seeds=10,
    ),
    Variant(
        "old records are sent again on trust", ((resend_core, "_old", broken_rules.no),), scripts.expired, seeds=10
    ),
    Variant(
        "what is in doubt is read when its retry comes",
        ((RetryLedgerKeeper, "look_ahead", broken_rules.keep_nothing),),
        scripts.swept,
        seeds=10,
    ),
    Variant(
        "acks=0 is compared, too",
        ((ProduceGate, "_produce", broken_rules.look_at_all),),
        scripts.unanswered,
        (UNANSWERED,),
        10,
    ),
    Variant(
        "the first records of batches are not compared",
        ((QuickCheck, "clears", broken_rules.clears_by_time),),
        _CUTS,
        beside=((Rules, "settled_requests", broken_rules.zero),),
    ),
    Variant(
        "once a connection is settled all that it sends is new",
        ((QuickCheck, "clears", broken_rules.yes),),
        _CUTS,
        beside=((Rules, "settled_requests", broken_rules.zero),),
    ),
    Variant(
        "batches are compared as bytes",
        (
            (reading, "read_batch", broken_rules.bytes_of_batch),
            (retries, "read_batch", broken_rules.bytes_of_batch),
        ),
        replace(_CUTS, topics=(GZIP,), regroup=("same",)),
    ),
    Variant(
        "of equal records the oldest is taken",
        ((Rules, "newest_first", broken_rules.no),),
        scripts.half_told,
        (MERGED,),
        10,
    ),
    Variant(
        "the retry of what was refused unsent is that of an equal request with a late response",
        ((ProducerConnection, "refused_unsent", broken_rules.keep_nothing),),
        scripts.late_told,
        (MERGED,),
        10,
    ),
    Variant(
        "a request may be the retry of an equal one whenever it was read",
        ((Rules, "sent_too_soon", broken_rules.no),),
        scripts.late_written,
        (MERGED,),
        10,
    ),
    Variant(
        "of equal records the newest is taken, though an older one received an error",
        ((Rules, "surely_retried", broken_rules.no),),
        scripts.told_beside,
        (MERGED,),
        10,
    ),
    Variant(
        "what arrives while a request waits has waited as long",
        ((Connection, "look_while_busy", broken_rules.keep_nothing),),
        scripts.late_leased,
        (MERGED,),
        10,
    ),
    Variant(
        "nothing shows that a response was received",
        ((Rules, "received_by_requests", broken_rules.no),),
        scripts.long_had,
        (MERGED,),
        10,
    ),
    Variant(
        "what is in doubt is forgotten at once, also long after a connection was half-open",
        ((Rules, "expired", broken_rules.yes),),
        scripts.long_given_up,
        seeds=10,
    ),
    Variant(
        "what was answered in time is retried on its connection",
        ((ProducerConnection, "_note_written", broken_rules.note_all),),
        scripts.long_cut,
        (MERGED,),
        10,
    ),
    Variant(
        "what was pipelined after a refused request is accepted",
        ((refusals._Refusal, "overtakes", broken_rules.no),),
        _MOVES,
        (ORDER,),
        first=54,
    ),
    Variant(
        "the retry of a refused request is still expected when it was accepted",
        ((AwaitedRetry, "end", broken_rules.keep_nothing),),
        scripts.led_away,
        (ORDER,),
        10,
        first=1,
    ),
    Variant(
        "what was refused late was sent late",
        ((Refused, "following", broken_rules.follows_when_refused),),
        scripts.spaced_round,
        (ORDER,),
        10,
    ),
    Variant(
        "an equal record is a retry of the refused one, whenever it was made",
        ((Refused, "in_retry_of_another_time", broken_rules.has_equal),),
        _MOVES,
        (ORDER,),
        first=307,
    ),
    Variant(
        "what was passed over is forgotten", ((Retries, "_move", broken_rules.pass_over),), replace(_CUTS, depths=(5,))
    ),
    Variant(
        "entries of producer ids in use expire",
        ((LaneLog, "renew", broken_rules.keep_nothing),),
        scripts.outlived,
        seeds=10,
        beside=((Lanes, "_end_expiring", broken_rules.keep_nothing),),
    ),
    Variant(
        "entries of producer ids in use are deleted before the next kproxy starts",
        ((LaneLog, "renew", broken_rules.keep_nothing),),
        scripts.outlived_and_killed,
        seeds=10,
        beside=((Lanes, "_end_expiring", broken_rules.keep_nothing),),
    ),
    Variant(
        "a producer id is used though its entry has expired",
        ((Lanes, "_end_expiring", broken_rules.keep_nothing),),
        scripts.unrecorded,
        seeds=10,
    ),
    Variant("other instances are not asked", ((Fleet, "look", broken_rules.nothing),), _FLEET_CUTS),
    Variant("what another instance holds is not fenced", ((BrokerLog, "fence", broken_rules.nothing),), _FLEET_TIMES),
    Variant(
        "a request is sent though nothing could be fenced on a partition that does not exist yet",
        ((recovery, "_move_missing", broken_rules.keep_nothing),),
        scripts.not_there_yet,
        seeds=10,
    ),
    Variant(
        "what was given back is not read",
        ((Fleet, "lanes", broken_rules.held_lanes), (Fleet, "lists", broken_rules.no_lists)),
        _FLEET_CUTS,
    ),
    Variant(
        "what is in doubt at another instance is not compared", ((Fleet, "lists", broken_rules.no_lists),), _FLEET_CUTS
    ),
    Variant(
        "what is in doubt when kproxy stops is not listed",
        ((RetryLedger, "in_doubt", broken_rules.nobody),),
        scripts.stopped,
        seeds=10,
    ),
    Variant(
        "a list tells all, whenever a connection was opened",
        ((Rules, "is_answered_by_list", broken_rules.yes),),
        replace(_FLEET, faults=("delay", "delay", "close", "cut")),
        seeds=300,
    ),
    Variant(
        "after a crash equal records are retries however far back",
        ((Rules, "is_found_by_time_only", broken_rules.no),),
        scripts.long_before,
        (MERGED,),
        10,
    ),
    Variant(
        "after a crash only the last batches are compared",
        ((BrokerLog, "retries_depth", LAST),),
        scripts.deep,
        seeds=10,
    ),
    Variant(
        "what another instance may have answered is surely not answered",
        ((Rules, "surely_not_received_elsewhere", broken_rules.yes),),
        replace(_FLEET_CUTS, equal=0.8, depths=(1, 2), versions=(5, 8), ages=(0.0,)),
        (MERGED,),
        first=151,
    ),
    Variant(
        "a request after the end of its connection is written whatever another instance has written since",
        ((retry_ledger, "CLOCKS_AGREE_SECONDS", float("-inf")),),
        replace(_FLEET, faults=("delay",), depths=(2, 5), topics=((),)),
        first=27,
    ),
    Variant(
        "a request that waits is not woken when another one is answered",
        ((RetryLedger, "release", broken_rules.no),),
        WIDE,
        (AWAKE,),
        first=25,
    ),
)
