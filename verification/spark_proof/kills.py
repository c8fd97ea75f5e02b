"""What is killed, and when: at random moments, or each in the middle of a batch that waits until it is killed."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol


class Kills(Protocol):
    """The kills of one run, in order."""

    def due(self) -> str | None:
        """What is to be killed now, if anything is; the same each time until ``killed`` is called."""
        ...

    def killed(self) -> None:
        """To be called when what was due has been killed."""
        ...


class RandomKills:
    """One kill every ``pause`` seconds on average."""

    def __init__(self, victims: Iterator[str], pause: float, chance: random.Random) -> None:
        self._victims = victims
        self._pause = pause
        self._chance = chance
        self._victim: str | None = None
        self.killed()

    def due(self) -> str | None:
        return self._victim if time.monotonic() > self._at else None

    def killed(self) -> None:
        self._victim = next(self._victims, None)
        self._at = time.monotonic() + self._pause * self._chance.uniform(0.5, 1.5)


class PlannedKills:
    """Each kill in a batch of its own. One task of that batch waits for the kill, so that no kill comes too late.

    The task waits while ``gates`` has a file with the number of the batch (``job.hold``).
    """

    def __init__(self, victims: Sequence[str], batches: int, gates: Path, is_written: Callable[[int], bool]) -> None:
        """``is_written``: whether a batch has begun to write and has not ended. ValueError if there are too few."""
        gates.mkdir(parents=True)
        self._gates = gates
        self._is_written = is_written
        self._rest = list(zip(kill_batches(len(victims), batches), victims, strict=True))
        for batch, _ in self._rest:
            (gates / str(batch)).touch()

    def due(self) -> str | None:
        if not self._rest:
            return None
        batch, victim = self._rest[0]
        return victim if self._is_written(batch) else None

    def killed(self) -> None:
        batch, _ = self._rest.pop(0)
        (self._gates / str(batch)).unlink()


def kill_batches(kills: int, batches: int) -> list[int]:
    """A batch for each kill, evenly over the run. ValueError if there are more kills than batches."""
    if kills > batches:
        raise ValueError(f"{kills} kills need {kills} batches, and there are {batches}")
    return [number * batches // (kills + 1) for number in range(1, kills + 1)]
