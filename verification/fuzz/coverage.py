"""Which lines of a target's modules its inputs reach, and which inputs are enough to reach them all."""

import importlib
import pkgutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

from verification.fuzz.target import Target

#: A file, the line before in the same function, and a line.
Step = tuple[str, int, int]
#: How often a step is taken is told apart up to this power of 2.
_MOST_POWER: Final = 8


class Coverage(NamedTuple):
    """Of the lines of some modules those that were reached."""

    reached: int
    lines: int


class _Recorder:
    """Records steps within some files."""

    def __init__(self, files: frozenset[str]) -> None:
        self._files = files
        self.steps: Counter[Step] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in self._files:
            return None
        before, steps = frame.f_lineno, self.steps

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal before
            if event == "line":
                steps[name, before, frame.f_lineno] += 1
                before = frame.f_lineno
            return line

        return line


def files_of(target: Target) -> frozenset[str]:
    """The source files of what a target covers."""
    return frozenset(str(Path(file).resolve()) for name in target.covers for file in _files(name))


def _files(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    if module.__file__ is not None:
        yield module.__file__
    for each in pkgutil.iter_modules(getattr(module, "__path__", ())):
        yield from _files(f"{name}.{each.name}")


def steps_of(target: Target, data: bytes, files: frozenset[str]) -> Counter[Step]:
    """The steps that the check of an input takes, and how often, whatever comes of it."""
    recorder, before = _Recorder(files), sys.gettrace()
    sys.settrace(recorder)
    try:
        target.check(data)
    except Exception:
        pass
    finally:
        sys.settrace(before)
    return recorder.steps


def smallest(target: Target, inputs: Iterable[bytes]) -> list[bytes]:
    """The inputs that each take a step that no shorter one takes, or take it twice as often or more."""
    files, known, chosen = files_of(target), set[tuple[Step, int]](), list[bytes]()
    for data in sorted(set(inputs), key=lambda data: (len(data), data)):
        steps = steps_of(target, data, files)
        new = {(step, min(count.bit_length(), _MOST_POWER)) for step, count in steps.items()} - known
        if new:
            known |= new
            chosen.append(data)
    return chosen


def covered(target: Target, inputs: Sequence[bytes]) -> Coverage:
    """The lines within functions that the inputs reach, of those that there are."""
    files = files_of(target)
    reached = {(name, line) for data in inputs for name, _, line in steps_of(target, data, files)}
    lines = {(name, line) for name in files for line in _lines(compile(Path(name).read_text(), name, "exec"), False)}
    return Coverage(len(reached & lines), len(lines))


def _lines(code: CodeType, inside: bool) -> Iterator[int]:
    """The lines in functions: those of modules and classes run on import."""
    if inside:
        lines = [line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno]
        yield from lines
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            function = bool(constant.co_flags & 1)  # CO_OPTIMIZED
            yield from _lines(constant, inside or function)
