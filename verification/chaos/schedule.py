"""Which fault when, on what, and for how long: a function of the seed and nothing else."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_FIRST_S: Final = 3.0
"""Everything works for so long, so that there is something to lose."""
_PAUSE_S: Final = (1.0, 4.0)
_MOST_AT_A_TIME: Final = 3
_ATTEMPTS: Final = 20
_GATEWAY_S: Final = 5.0

_NETWORK: Final = ("cut", "drop answers", "delay", "half-open")
_PROCESS: Final = ("kill", "pause")
_GATEWAY: Final = (*_PROCESS, "cut off")
FAULTS: Final[Mapping[str, Sequence[str]]] = {
    "client": _NETWORK,
    "upstream": _NETWORK,
    "kproxy": _PROCESS,
    "broker": _PROCESS,
    "leaders": ("move",),
}
"""By family."""
SECONDS: Final[Mapping[str, tuple[float, float]]] = {
    "cut": (0.0, 0.0),
    "drop answers": (1.0, 5.0),
    "delay": (1.0, 6.0),
    "half-open": (1.0, 8.0),
    "kill": (0.1, 3.0),
    "pause": (1.0, 9.0),
    "move": (0.0, 0.0),
}
"""How long each fault lasts, least and most; of a kill, how long until the restart."""
_RECOVERY_S: Final[Mapping[tuple[str, str], float]] = {("broker", "kill"): 12.0, ("broker", "pause"): 4.0}
"""How long a target, and all others of its kind, are spared afterwards: two of three brokers must be well."""

FAMILIES: Final = tuple(FAULTS)


@dataclass(frozen=True, slots=True)
class Step:
    """One fault. ``family`` says where: the relays on either side of kproxy, kproxy itself, a broker.

    Leaders that a broker has lost go back to it, all at once (``move``); for that the target says nothing.
    """

    at: float
    family: str
    fault: str
    target: int
    seconds: float
    chance: float
    """0 to 1, for whatever the fault leaves open: its share, its ending, its delay."""

    def __str__(self) -> str:
        return f"{self.fault} {self.family} {self.target} for {self.seconds:.1f} s"


def make_schedule(
    seed: int, seconds: float, *, kproxies: int, brokers: int, families: Sequence[str] = FAMILIES
) -> list[Step]:
    """Return the faults of a run, by time.

    At most three at a time, no two of a kind on one target, and of several brokers never two down or frozen.
    """
    chance = random.Random(seed)
    steps: list[Step] = []
    at = _FIRST_S
    while True:
        at += chance.uniform(*_PAUSE_S)
        if at >= seconds:
            return steps
        for _ in range(_ATTEMPTS):
            step = _draw(chance, at, kproxies, brokers, families)
            if at + step.seconds < seconds and _fits(step, steps):
                steps.append(step)
                break


def gateway_schedule(seed: int, seconds: float, kproxies: int) -> list[Step]:
    """Return the faults of a run in which one kproxy is killed, frozen or cut off from the brokers every 5 s, for up to
    4 s.
    """
    chance = random.Random(seed)
    steps: list[Step] = []
    while (at := _GATEWAY_S * (len(steps) + 1)) < seconds - _GATEWAY_S:
        fault, target = chance.choice(_GATEWAY), chance.randrange(kproxies)
        steps.append(Step(at, "kproxy", fault, target, chance.uniform(0.1, _GATEWAY_S - 1), chance.random()))
    return steps


def _draw(chance: random.Random, at: float, kproxies: int, brokers: int, families: Sequence[str]) -> Step:
    family = chance.choice(families)
    fault = chance.choice(FAULTS[family])
    target = chance.randrange(kproxies if family in ("client", "kproxy") else brokers)
    return Step(at, family, fault, target, chance.uniform(*SECONDS[fault]), chance.random())


def _fits(step: Step, others: Sequence[Step]) -> bool:
    running = [other for other in others if other.at + other.seconds + _spared(other) > step.at]
    active = sum(other.at + other.seconds > step.at for other in running)
    return active < _MOST_AT_A_TIME and not any(_excludes(other, step) for other in running)


def _spared(step: Step) -> float:
    return _RECOVERY_S.get((step.family, step.fault), 1.0)


def _excludes(one: Step, other: Step) -> bool:
    if one.family != other.family:
        return False
    if one.family == "broker":
        return True
    return one.target == other.target and (one.family == "kproxy" or one.fault == other.fault)
