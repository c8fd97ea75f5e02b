"""Broken on purpose: kproxy without a rule about epochs that idempotent clients raise."""

from dataclasses import replace
from typing import Final

from kproxy.dedup.kept import raised, repair
from kproxy.dedup.kept.producers import KeptPartition
from kproxy.net import kept_repairs
from verification.simulation import broken_kept, broken_rules
from verification.simulation.invariants import DUPLICATE, LOST, MERGED, OFFSETS
from verification.simulation.plan import LOG_APPEND_TIME
from verification.simulation.tastes import MOSTLY, WIDE_FLEET, Taste, with_numbers
from verification.simulation.variants import Variant

_RAISING: Final = Taste(
    faults=("half_open", "slow_broker", "dropped_answer", "upstream_half_open", "upstream_delay"),
    fault_count=(8, 12),
    numbered=(True,),
    raises=("same", "split", "join"),
    request_timeouts=(2.0,),
    topics=((),),
    ages=(0.0,),
    instances=(1,),
)

KEPT_VARIANTS: Final = (
    Variant("what comes under a raised epoch is new", ((KeptPartition, "may_be_older", broken_rules.no),), _RAISING),
    Variant(
        "what is in flight under an earlier epoch is not fenced off",
        ((repair, "_fence", broken_kept.unfenced),),
        _RAISING,
    ),
    Variant(
        "a batch of an epoch that its client has left is sent",
        ((KeptPartition, "has_left", broken_rules.no),),
        replace(_RAISING, faults=("delay", "upstream_delay", "cut")),
    ),
    Variant(
        "what was found under one raised epoch is not searched under the next",
        ((KeptPartition, "_first_older", broken_kept.continued),),
        _RAISING,
    ),
    Variant(
        "a batch is in the log as a whole",
        ((kept_repairs, "align", broken_kept.whole),),
        replace(_RAISING, raises=("join",), depths=(5,)),
    ),
    Variant(
        "an equal record is a copy, whatever its timestamp",
        ((raised, "is_copy", broken_kept.equal),),
        replace(_RAISING, equal=MOSTLY),
        (MERGED, LOST, OFFSETS, DUPLICATE),
    ),
    Variant(
        "a log with LogAppendTime has no timestamps of the client",
        ((kept_repairs, "LogReading", broken_kept.as_shown),),
        replace(_RAISING, topics=(LOG_APPEND_TIME,)),
    ),
    Variant(
        "a client has the epoch of a batch, though the broker has a newer one",
        ((KeptPartition, "is_current", broken_rules.yes),),
        with_numbers(WIDE_FLEET),
        first=9_592_134,
    ),
    Variant(
        "of a producer's ids only the one in use is fenced off",
        ((repair, "_fence", broken_kept.fenced_in_use),),
        with_numbers(WIDE_FLEET),
        first=9_630_044,
    ),
)
