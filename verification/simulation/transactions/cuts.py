"""The cuts of a plan with transactions: fewer faults, producers, readers, lives, turns, transactions."""

from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from verification.simulation.shrinking import Shrinker
from verification.simulation.transactions.plan import Life, ProducerPlan, TransactionPlan, WorldPlan
from verification.simulation.transactions.world import run
from verification.simulation.world import Outcome

#: Such runs take longer than others: so many of smaller plans at most.
_ATTEMPTS: Final = 150
_Place: TypeAlias = tuple[int, int, int]


def shrink(outcome: Outcome) -> Outcome:
    """The same broken invariant with as few faults, producers, readers, lives and transactions as can be found."""
    return Shrinker[WorldPlan](outcome, run, _ATTEMPTS).shrink(_cut)


def _cut(shrinker: Shrinker[WorldPlan]) -> None:
    shrinker.drop(lambda plan: plan.faults, lambda plan, kept: replace(plan, faults=kept))
    shrinker.drop(lambda plan: plan.producers, lambda plan, kept: replace(plan, producers=kept))
    shrinker.drop(lambda plan: plan.member_groups, lambda plan, kept: replace(plan, member_groups=kept))
    shrinker.drop(lambda plan: plan.readers, lambda plan, kept: replace(plan, readers=kept))
    for number in [producer.number for producer in shrinker.plan.producers]:
        shrinker.drop(partial(_lives, number), partial(_with_lives, number))
        shrinker.drop(partial(_turns, number), partial(_with_turns, number))
        for nth in range(len(_lives(number, shrinker.plan))):
            shrinker.drop(partial(_transactions, number, nth), partial(_with_transactions, number, nth))


def _lives(number: int, plan: WorldPlan) -> tuple[Life, ...]:
    return _producer(plan, number).lives


def _with_lives(number: int, plan: WorldPlan, kept: tuple[Life, ...]) -> WorldPlan:
    changed = replace(_producer(plan, number), lives=kept)
    producers = tuple(changed if producer.number == number else producer for producer in plan.producers)
    return replace(plan, producers=producers)


def _transactions(number: int, nth: int, plan: WorldPlan) -> tuple[TransactionPlan, ...]:
    return _lives(number, plan)[nth].transactions


def _with_transactions(number: int, nth: int, plan: WorldPlan, kept: tuple[TransactionPlan, ...]) -> WorldPlan:
    lives = _lives(number, plan)
    return _with_lives(number, plan, (*lives[:nth], replace(lives[nth], transactions=kept), *lives[nth + 1 :]))


def _turns(number: int, plan: WorldPlan) -> tuple[_Place, ...]:
    """Each turn, by its life, its transaction and its number there."""
    return tuple(
        (nth, at, turn)
        for nth, life in enumerate(_lives(number, plan))
        for at, planned in enumerate(life.transactions)
        for turn in range(len(planned.turns))
    )


def _with_turns(number: int, plan: WorldPlan, kept: tuple[_Place, ...]) -> WorldPlan:
    lives = tuple(
        replace(life, transactions=tuple(_kept(nth, at, one, kept) for at, one in enumerate(life.transactions)))
        for nth, life in enumerate(_lives(number, plan))
    )
    return _with_lives(number, plan, lives)


def _kept(nth: int, at: int, planned: TransactionPlan, kept: tuple[_Place, ...]) -> TransactionPlan:
    return replace(planned, turns=tuple(one for turn, one in enumerate(planned.turns) if (nth, at, turn) in kept))


def _producer(plan: WorldPlan, number: int) -> ProducerPlan:
    return next(producer for producer in plan.producers if producer.number == number)
