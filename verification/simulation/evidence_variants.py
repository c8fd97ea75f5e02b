"""Broken on purpose: kproxy without a rule about what a client has received, or about sequence numbers at their end."""

from dataclasses import replace
from typing import Final

from kproxy.dedup import lanes
from kproxy.dedup.producer_connection import ProducerConnection
from kproxy.dedup.retry_ledger import RetryLedger
from kproxy.dedup.retry_rules import Rules
from kproxy.net.retry_ledger_keeper import RetryLedgerKeeper
from verification.simulation import broken_evidence, broken_rules, evidence_scripts
from verification.simulation.invariants import ANSWERED, DUPLICATE, FAILED, LOST, MERGED, ORDER
from verification.simulation.tastes import LAST_SEQUENCE, WIDE
from verification.simulation.variants import Variant
from verification.simulation.virtual_io import VirtualIO

_CLOSED_WELL: Final = replace(WIDE, faults=(), mostly_equal=1.0, closes_each=(True,), clean_close_windows=(0,))
_AT_THE_END: Final = replace(
    WIDE, faults=("cut", "slow_broker", "lost_answer"), first_sequences=(LAST_SEQUENCE - 3,), depths=(1, 5)
)

EVIDENCE_VARIANTS: Final = (
    Variant(
        "a missing acknowledgement shows that a response was not received",
        ((ProducerConnection, "end", broken_evidence.end_by_acks),),
        evidence_scripts.cut_before_ack,
        (MERGED,),
        10,
    ),
    Variant(
        "a missing acknowledgement shows so, where only acknowledgements are lost",
        ((ProducerConnection, "end", broken_evidence.end_by_acks),),
        evidence_scripts.acks_lost,
        (MERGED,),
        10,
    ),
    *(
        Variant(
            f"an end in good order proves nothing: {run.__name__}",
            ((RetryLedgerKeeper, "_clean_window", broken_evidence.window_for_all),),
            run,
            (MERGED,),
            10,
        )
        for run in (evidence_scripts.process_for_each, evidence_scripts.run_twice, evidence_scripts.heartbeat)
    ),
    Variant(
        "an end in good order proves nothing",
        ((RetryLedgerKeeper, "_clean_window", broken_evidence.window_for_all),),
        _CLOSED_WELL,
        (MERGED,),
    ),
    Variant(
        "requests are evidence as soon as the response is written, and five of them are enough",
        ((Rules, "has_arrived", broken_rules.yes), (Rules, "most_unread", broken_evidence.few_unread)),
        evidence_scripts.deep_and_far,
        seeds=10,
    ),
    Variant(
        "a connection outlives its client's time-outs from when the response was written",
        ((Rules, "received_by_time", broken_evidence.outlived_since_write),),
        evidence_scripts.reads_late,
        seeds=10,
    ),
    Variant(
        "a response comes in time if it was written in time",
        ((Rules, "is_too_late", broken_rules.no),),
        evidence_scripts.late_on_the_way,
        seeds=10,
    ),
    Variant(
        "a connection that still brings a request was not left",
        ((Rules, "may_be_left", broken_rules.no),),
        evidence_scripts.overtaken,
        seeds=10,
    ),
    Variant(
        "a connection that does not acknowledge was not left",
        ((RetryLedger, "_see_older", broken_rules.keep_nothing),),
        evidence_scripts.short_cut_route,
        seeds=10,
    ),
    Variant(
        "two programs of one name are one",
        ((Rules, "is_of_another_program", broken_rules.no),),
        evidence_scripts.two_programs,
        (MERGED,),
        10,
    ),
    Variant(
        "an acknowledgement shows that the client is there, though its end may be untaken",
        ((ProducerConnection, "_heard", broken_evidence.hear_all),),
        evidence_scripts.relayed,
        seeds=10,
    ),
    Variant(
        "sequence numbers do not wrap",
        ((lanes, "advance", broken_evidence.stays_at_last),),
        _AT_THE_END,
        (DUPLICATE, LOST, ORDER, FAILED, ANSWERED),
    ),
)

#: kproxy sets no user time-out, so that it keeps a connection whose route is cut, and treats it as one in use.
UNLIMITED: Final = Variant(
    "an end that owes a response stays open",
    (
        (VirtualIO, "limit_unacknowledged", broken_rules.keep_nothing),
        (RetryLedger, "_see_older", broken_rules.keep_nothing),
    ),
    evidence_scripts.long_cut_route,
    seeds=10,
)
