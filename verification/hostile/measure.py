"""What an attack cost kproxy, as a row of the report, and whether that is too much."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final, TypeVar

from verification.hostile.pings import Pings
from verification.hostile.target import Target

#: Share by which memory and files may be above the start after the attack.
_TENTH: Final = 0.1
#: Connections of kproxy's own to brokers, which it opens and closes at any time.
_OWN_FILES: Final = 10
_COMES_BACK_SECONDS: Final = 30.0
_MIB: Final = 1 << 20

T = TypeVar("T", bound=Target)


@dataclass(frozen=True, slots=True)
class Limits:
    """What an attack may cost."""

    #: The longest stretch of the loop's work, in seconds of processor time.
    stretch: float
    #: Bytes by which memory may rise during it above that of the idle process; None: any.
    rise: int | None = None
    #: The longest wait of an honest client, in seconds; None: any.
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One attack."""

    name: str
    seconds: float
    #: Bytes of memory before and after it; open files likewise.
    memory: tuple[int, int]
    #: Bytes by which it rose at most during it, above those of the idle process at its start.
    rise: int
    files: tuple[int, int]
    #: The longest stretch of the loop's work, in seconds of processor time.
    stretch: float
    #: The longest wait of an honest client beside the attack, in seconds; None: there was none.
    wait: float | None
    answers: str
    tracebacks: int
    alive: bool

    @property
    def has_grown(self) -> bool:
        """Whether memory is more than a tenth above what it was before."""
        return _too_much(*self.memory)

    def faults(self, limits: Limits) -> list[str]:
        """What is not as it has to be."""
        found = []
        if not self.alive:
            found.append("kproxy has ended")
        if self.tracebacks:
            found.append(f"{self.tracebacks} tracebacks")
        if self.has_grown:
            found.append(f"memory grew by {(self.memory[1] - self.memory[0]) / _MIB:.0f} MiB")
        if self.files[1] > self.files[0] * (1 + _TENTH) + _OWN_FILES:
            found.append(f"{self.files[1] - self.files[0]} files left open")
        if self.stretch > limits.stretch:
            found.append(f"the loop worked for {self.stretch * 1000:.0f} ms without a break")
        if limits.rise is not None and self.rise > limits.rise:
            found.append(f"memory rose by {self.rise / _MIB:.0f} MiB meanwhile")
        if limits.wait is not None and self.wait is not None and self.wait > limits.wait:
            found.append(f"an honest client waited for {self.wait:.1f} s")
        return found


def _too_much(before: int, after: int) -> bool:
    return after > before * (1 + _TENTH)


def measured(target: T, name: str, attack: Callable[[T], str], *, pings: bool = True) -> Row:
    """Runs an attack; waits up to 30 s for memory and files to come back. ``pings``: beside an honest client."""
    memory, files, tracebacks = target.memory, target.open_files, target.tracebacks
    target.longest_stretch.seconds = 0.0
    target.waits.clear()
    target.forget_peak()
    began = time.monotonic()
    with Pings(target) if pings else nullcontext() as honest:
        answers = attack(target)
        seconds = time.monotonic() - began
    rise = target.peak - target.idle_memory if target.alive else 0
    deadline = time.monotonic() + _COMES_BACK_SECONDS
    while target.alive and (_too_much(memory, target.memory) or target.open_files > files + _OWN_FILES):
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    waits = target.waits if honest is None else [*target.waits, honest.slowest]
    return Row(
        name,
        seconds,
        (memory, target.memory if target.alive else 0),
        rise,
        (files, target.open_files if target.alive else 0),
        target.longest_stretch.seconds,
        max(waits, default=None),
        answers,
        target.tracebacks - tracebacks,
        target.alive,
    )
