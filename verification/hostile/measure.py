"""What an attack cost kproxy, as a row of the report, and whether that is too much."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

from verification.hostile.pings import Pings
from verification.hostile.target import Besieged

#: Share by which memory and files may be above the start after the attack.
_TENTH: Final = 0.1
#: Connections of kproxy's own to brokers, which it opens and closes at any time.
_OWN_FILES: Final = 10
_COMES_BACK_SECONDS: Final = 30.0
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One attack."""

    name: str
    seconds: float
    #: Bytes of memory before and after it; open files likewise.
    memory: tuple[int, int]
    files: tuple[int, int]
    #: The longest stretch of the loop's work, in seconds of processor time.
    stretch: float
    #: The longest wait for the health page beside the attack, in seconds; None: nobody asked for it.
    wait: float | None
    answers: str
    tracebacks: int
    alive: bool

    @property
    def has_grown(self) -> bool:
        """Whether memory is more than a tenth above what it was before."""
        return _too_much(*self.memory)

    def faults(self, most_stretch: float) -> list[str]:
        """What is not as it has to be; ``most_stretch``: the longest stretch allowed, in seconds."""
        found = []
        if not self.alive:
            found.append("kproxy has ended")
        if self.tracebacks:
            found.append(f"{self.tracebacks} tracebacks")
        if self.has_grown:
            found.append(f"memory grew by {(self.memory[1] - self.memory[0]) / _MIB:.0f} MiB")
        if self.files[1] > self.files[0] * (1 + _TENTH) + _OWN_FILES:
            found.append(f"{self.files[1] - self.files[0]} files left open")
        if self.stretch > most_stretch:
            found.append(f"the loop worked for {self.stretch * 1000:.0f} ms without a break")
        return found


def _too_much(before: int, after: int) -> bool:
    return after > before * (1 + _TENTH)


def measured(proxy: Besieged, name: str, attack: Callable[[Besieged], str], *, pings: bool = True) -> Row:
    """Runs an attack; waits up to 30 s for memory and files to come back. ``pings``: beside an honest client."""
    memory, files, tracebacks = proxy.memory, proxy.open_files, proxy.tracebacks
    proxy.longest_stretch.seconds = 0.0
    began = time.monotonic()
    with Pings(proxy) if pings else nullcontext() as honest:
        answers = attack(proxy)
        seconds = time.monotonic() - began
    deadline = time.monotonic() + _COMES_BACK_SECONDS
    while proxy.alive and (_too_much(memory, proxy.memory) or proxy.open_files > files + _OWN_FILES):
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return Row(
        name,
        seconds,
        (memory, proxy.memory if proxy.alive else 0),
        (files, proxy.open_files if proxy.alive else 0),
        proxy.longest_stretch.seconds,
        None if honest is None else honest.slowest,
        answers,
        proxy.tracebacks - tracebacks,
        proxy.alive,
    )
