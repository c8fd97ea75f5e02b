"""What an input costs, in instructions and memory, neither of which depends on how busy the machine is."""

import sys
import tracemalloc
from types import FrameType
from typing import Any, NamedTuple

from verification.fuzz.target import Finding, Target


class Cost(NamedTuple):
    """What a check of one input took."""

    #: Instructions of Python's virtual machine.
    steps: int
    #: Bytes that were allocated at the same time, at most.
    memory: int


class _Counter:
    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> "_Counter":
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.steps += event == "opcode"
        return self


def cost(target: Target, data: bytes) -> Cost:
    """What the check of an input takes once modules are loaded and caches are filled. Raises what the check raises."""
    target.check(data)
    counter, before = _Counter(), sys.gettrace()
    sys.settrace(counter)
    try:
        target.check(data)
    finally:
        sys.settrace(before)
    return Cost(counter.steps, _memory(target, data))


def _memory(target: Target, data: bytes) -> int:
    traced = tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        target.check(data)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not traced:
            tracemalloc.stop()


def bounded(target: Target, data: bytes) -> Cost:
    """What ``cost`` says; Finding if it is above the target's bound."""
    found, bound = cost(target, data), target.bound
    steps = bound.steps + bound.steps_of_byte * len(data)
    memory = bound.memory + bound.memory_of_byte * len(data)
    if found.steps > steps:
        raise Finding(f"{found.steps} instructions for {len(data)} bytes; at most {steps} are allowed")
    if found.memory > memory:
        raise Finding(f"{found.memory} bytes of memory for {len(data)} bytes; at most {memory} are allowed")
    return found
