"""Tells whether two runs came to the same state: all that anything that may still happen depends on."""

from collections import deque
from collections.abc import Iterator
from enum import Enum
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any, Final

from kproxy.proxy.traces import NoTraces
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.procedures.managed_outside import ManagedTools
from kproxy.txn.procedures.outside import OwnerTools
from kproxy.txn.procedures.owner_requests import OwnerRequests
from kproxy.txn.view import IdView
from kproxy.txn.views import Views
from verification.explorer.engine import Clock, Engine
from verification.explorer.instance import Instance
from verification.explorer.world import World

#: What says nothing of its own: it follows from what else is compared, or nothing depends on it.
_SILENT: Final = (
    *(Views, IdView, OwnerTools, ManagedTools, OwnerRequests, TransactionStats, NoTraces),
    *(Clock, Engine, World, ModuleType, type),
)
_PLAIN: Final = (int, str, float, bool, type(None), bytes)


class _Walk:
    """One walk over all objects: those that were met before are named by their number."""

    def __init__(self) -> None:
        self._met: dict[int, int] = {}
        #: Keeps what was met, so that its number stays its own.
        self._kept: list[object] = []

    def of(self, one: Any) -> object:
        """Return what compares equal for equal states."""
        if isinstance(one, _PLAIN):
            return one
        if isinstance(one, Enum):
            return one.name
        if isinstance(one, memoryview | bytearray):
            return bytes(one)
        if isinstance(one, _SILENT) or one is None:
            return type(one).__name__
        if isinstance(one, Instance):
            return one.name, one.life, one.position, one.reading.restarts, one.rejects_read
        if isinstance(one, tuple):
            return tuple([self.of(item) for item in one])
        number = self._met.get(id(one))
        if number is not None:
            return number
        self._met[id(one)] = len(self._met)
        self._kept.append(one)
        return self._inside(one)

    def _inside(self, one: Any) -> object:
        if isinstance(one, list | deque):
            return tuple([self.of(item) for item in one])
        if isinstance(one, dict):
            return tuple([(self.of(key), self.of(value)) for key, value in one.items()])
        if isinstance(one, set | frozenset):
            return tuple(sorted([repr(self.of(item)) for item in one]))
        if isinstance(one, BaseException):
            return type(one).__name__, self.of(one.args)
        running = self._running(one)
        return running or (type(one).__name__, tuple([(name, self.of(value)) for name, value in _fields(one)]))

    def _running(self, one: Any) -> object:
        """Return what can be called, and what runs; None if it is neither."""
        if isinstance(one, MethodType):
            return one.__name__, self.of(one.__self__)
        if isinstance(one, BuiltinFunctionType):
            return one.__name__
        if isinstance(one, FunctionType):
            cells = tuple([self.of(_content(cell)) for cell in one.__closure__ or ()])
            return one.__qualname__, cells, self.of(one.__defaults__)
        if isinstance(one, CoroutineType):
            return self._frame(one.cr_frame), self.of(one.cr_await)
        if isinstance(one, AsyncGeneratorType):
            return self._frame(one.ag_frame), self.of(one.ag_await)
        if isinstance(one, GeneratorType):
            return self._frame(one.gi_frame), self.of(one.gi_yieldfrom)
        return None

    def _frame(self, frame: FrameType | None) -> object:
        if frame is None:
            return None
        known = tuple([(name, self.of(value)) for name, value in sorted(frame.f_locals.items())])
        return frame.f_code.co_qualname, frame.f_lasti, known


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None


_SLOTS: dict[type, tuple[str, ...]] = {}


def _fields(one: Any) -> Iterator[tuple[str, Any]]:
    kind = type(one)
    if kind not in _SLOTS:
        names = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ()) if name != "__weakref__"]
        _SLOTS[kind] = tuple(names)
    for name in _SLOTS[kind]:
        if hasattr(one, name):
            yield name, getattr(one, name)
    yield from getattr(one, "__dict__", {}).items()


def key_of(world: World) -> int:
    """A number that is the same for equal states."""
    walk = _Walk()
    writers = tuple(sorted(world.writers.known.items()))
    log = tuple([(walk.of(entry), at) for entry, at in world.log])
    partitions = tuple(
        [(tuple(one.rows), tuple(sorted(one.producers.known.items()))) for one in world.partitions.values()]
    )
    flying = tuple(sorted([repr(walk.of(flight.key)) for flight in world.flying]))
    instances = tuple(
        [
            (walk.of(one), tuple(one.views.unknown), one._nonces, walk.of((one.owners, one.kept())))
            for one in world.instances
        ]
    )
    clients = tuple([walk.of(client) for client in world.clients])
    tasks = tuple([(task.name, walk.of(task.waits), walk.of(task.coroutine)) for task in world.engine.tasks])
    budget = tuple(sorted(world.budget.items()))
    return hash(
        (
            *(log, writers, tuple(partitions), flying, instances, clients, tasks, budget),
            *(world.generation, world.time.seconds, world.log_start, walk.of(world.rejects), world.facts()),
        )
    )
