"""Runs coroutines without an event loop: each waits at a ``Step`` until something that may happen lets it continue.

For granted is taken that a task that is woken by another one runs before anything else happens outside, and that tasks
wait for a lock in the order in which they came.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias

from kproxy.errors import KproxyError

Action: TypeAlias = Callable[[], None]


class Move(NamedTuple):
    """Something that may happen next."""

    text: str
    do: Action
    #: Whether it is a fault, of which there are only so many in a run.
    is_fault: bool = False


class Step:
    """Something that a coroutine waits for."""

    def __init__(self, kind: str, *facts: Any) -> None:
        """``facts`` tell it from other steps of its kind."""
        self.kind, self.facts = kind, facts
        self.task: Task | None = None

    def __await__(self) -> Generator["Step", Any, Any]:
        """Return what ``Task.resume`` is given."""
        return (yield self)

    def moves(self) -> Iterator[Move]:
        """Yield what may happen to it; nothing, if only another task can end the wait."""
        return iter(())

    def given_up(self) -> None:
        """Its task waits for it no more; what it has sent may still arrive."""


class Cancelled(BaseException):
    """A scope was cancelled."""

    def __init__(self, scope: "Scope") -> None:
        """``scope`` ends here."""
        super().__init__()
        self.scope = scope


class Task:
    """One coroutine."""

    def __init__(
        self,
        engine: "Engine",
        name: str,
        place: object,
        coroutine: Coroutine[Step, Any, Any],
        done: Callable[["Task"], None],
    ) -> None:
        """``place``: what it ends with; ``done`` is called at its end."""
        self.engine, self.name, self.place = engine, name, place
        self.coroutine = coroutine
        self.waits: Step | None = None
        self.scopes: list[Scope] = []
        self.result: Any = None
        self.error: Exception | None = None
        self.is_over = False
        self._done = done

    def resume(self, value: Any = None, error: BaseException | None = None) -> None:
        """Continues with a value, or an error, when those before it have run."""
        if self.engine.is_over:
            return
        self.waits = None
        self.engine.ready.append((self, value, error))
        self.engine.run()

    def step(self, value: Any, error: BaseException | None) -> None:
        """Runs to the next wait."""
        while True:
            try:
                waits = self.coroutine.throw(error) if error is not None else self.coroutine.send(value)
            except StopIteration as stop:
                self._end(stop.value, None)
                return
            except Cancelled:
                self._end(None, None)
                return
            except (OSError, KproxyError) as failure:
                self._end(None, failure)
                return
            cancelled = next((scope for scope in self.scopes if scope.is_cancelled), None)
            if cancelled is None:
                break
            waits.given_up()
            error = Cancelled(cancelled)
        waits.task, self.waits = self, waits

    def _end(self, result: Any, error: Exception | None) -> None:
        self.is_over, self.result, self.error = True, result, error
        if self in self.engine.tasks:
            self.engine.tasks.remove(self)
        self._done(self)

    def kill(self) -> None:
        """Ends it with what it runs in; what it has sent may still arrive."""
        self._done = _nobody
        if self.waits is not None:
            self.waits.given_up()
        self.coroutine.close()


def _nobody(_: Task) -> None:
    pass


class Engine:
    """All tasks."""

    def __init__(self) -> None:
        """Nothing runs."""
        self.tasks: list[Task] = []
        self.ready: deque[tuple[Task, Any, BaseException | None]] = deque()
        self.current: Task | None = None
        self.is_over = False

    def close(self) -> None:
        """Ends all tasks; nothing comes of what they do at their ends."""
        self.is_over = True
        for task in self.tasks:
            task.coroutine.close()

    def start(
        self,
        name: str,
        place: object,
        coroutine: Coroutine[Step, Any, Any],
        done: Callable[[Task], None] = _nobody,
    ) -> Task:
        """Begins a coroutine, when those before it have run."""
        task = Task(self, name, place, coroutine, done)
        self.tasks.append(task)
        task.resume()
        return task

    def run(self) -> None:
        """Runs what is ready, unless that is being done."""
        if self.current is not None:
            return
        while self.ready:
            task, value, error = self.ready.popleft()
            if task not in self.tasks:
                continue
            self.current = task
            try:
                task.step(value, error)
            finally:
                self.current = None

    def kill(self, place: object) -> None:
        """Ends all tasks of a place: none of them continues when another one gives up a lock."""
        killed = [task for task in self.tasks if task.place is place]
        self.tasks = [task for task in self.tasks if task.place is not place]
        for task in killed:
            task.kill()

    def moves(self) -> Iterator[Move]:
        """Yield what may happen to what tasks wait for."""
        for task in self.tasks:
            if task.waits is not None:
                yield from task.waits.moves()


class Scope:
    """The like of trio's ``CancelScope``."""

    def __init__(self, engine: Engine, seconds: float | None = None) -> None:
        """Nothing is cancelled; ``seconds``: the time of the scope, if it ends."""
        self._engine, self.seconds = engine, seconds
        self._task: Task | None = None
        self.is_cancelled = self._is_caught = False

    def __enter__(self) -> Self:
        """The task that runs is in it from now on."""
        self._task = self._engine.current
        assert self._task is not None
        self._task.scopes.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Takes the error that it has caused."""
        assert self._task is not None
        self._task.scopes.remove(self)
        self._is_caught = isinstance(error, Cancelled) and error.scope is self
        return self._is_caught

    @property
    def cancelled_caught(self) -> bool:
        """Whether it was cut short."""
        return self._is_caught

    def cancel(self) -> None:
        """Ends the wait of its task, or the next one."""
        self.is_cancelled = True
        task = self._task
        if task is not None and task.waits is not None:
            task.waits.given_up()
            task.resume(error=Cancelled(self))


class Lock:
    """The like of trio's ``Lock``."""

    def __init__(self, engine: Engine) -> None:
        """Nobody has it."""
        self._engine = engine
        self._is_held = False
        self._waiting: deque[Task] = deque()

    def locked(self) -> bool:
        """Whether somebody has it."""
        return self._is_held

    async def acquire(self) -> None:
        """Waits for it."""
        if not self._is_held:
            self._is_held = True
            return
        task = self._engine.current
        assert task is not None
        self._waiting.append(task)
        try:
            await Step("lock")
        except BaseException:
            if task in self._waiting:
                self._waiting.remove(task)
            raise

    def acquire_nowait(self) -> None:
        """Takes it; nobody has it."""
        assert not self._is_held
        self._is_held = True

    def release(self) -> None:
        """Gives it to the next one that waits."""
        while self._waiting:
            task = self._waiting.popleft()
            if task in self._engine.tasks:
                task.resume()
                return
        self._is_held = False


class Event:
    """The like of trio's ``Event``."""

    def __init__(self) -> None:
        """Begin as one that has not happened."""
        self._is_set = False
        self._waiting: list[Step] = []

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._is_set

    def set(self) -> None:
        """Let it happen."""
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for step in waiting:
            if step.task is not None and step.task.waits is step:
                step.task.resume()

    async def wait(self) -> None:
        """Waits for it."""
        if not self._is_set:
            step = Step("event")
            self._waiting.append(step)
            await step


#: Seconds since 1970 at the beginning of a run.
_EPOCH: Final = 1_700_000_000


class Clock:
    """``procedures.outside.Time``: it moves when the world says so."""

    def __init__(self, engine: Engine) -> None:
        """Serve the tasks of ``engine``."""
        self._engine = engine
        self.seconds = 0.0

    def now(self) -> float:
        """Seconds since the beginning."""
        return self.seconds

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return int((_EPOCH + self.seconds) * 1000)

    def lock(self) -> Lock:
        """A lock that nobody has."""
        return Lock(self._engine)

    def event(self) -> "Event":
        """An event that has not happened."""
        return Event()

    async def sleep(self, seconds: float) -> None:
        """No time passes."""

    def scope(self, seconds: float | None = None) -> Scope:
        """A scope; its time runs out only where the world says so."""
        return Scope(self._engine, seconds)
