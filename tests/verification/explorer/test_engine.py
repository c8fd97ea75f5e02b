"""Coroutines without an event loop: they wait, are woken in order, and are cut short."""

from collections.abc import Iterator
from typing import Any

from verification.explorer.engine import Clock, Engine, Lock, Move, Step, Task


class Asking(Step):
    """Waits for an answer."""

    def moves(self) -> Iterator[Move]:
        assert self.task is not None
        yield Move(f"{self.task.name} is answered", lambda: self.task and self.task.resume("answer"))


def test_a_task_continues_where_it_waits() -> None:
    engine, told = Engine(), list[Any]()

    async def work() -> str:
        told.append(await Asking("ask"))
        return "done"

    task = engine.start("one", None, work())
    (move,) = engine.moves()
    assert (move.text, told) == ("one is answered", [])
    move.do()
    assert (told, task.is_over, task.result) == (["answer"], True, "done")
    assert list(engine.moves()) == []


def test_an_error_ends_its_task() -> None:
    engine, ended = Engine(), list[Task]()

    async def work() -> None:
        raise OSError("closed")

    engine.start("one", None, work(), ended.append)
    assert [str(task.error) for task in ended] == ["closed"]


def test_a_lock_is_for_one_after_the_other() -> None:
    engine = Engine()
    lock, order = Lock(engine), list[str]()

    async def work(name: str) -> None:
        await lock.acquire()
        order.append(name)
        await Asking("ask")
        lock.release()

    places = [object(), object(), object()]
    for name, place in zip("abc", places, strict=True):
        engine.start(name, place, work(name))
    assert order == ["a"]
    engine.kill(places[1])
    next(engine.moves()).do()
    assert order == ["a", "c"]
    assert lock.locked()
    next(engine.moves()).do()
    assert not lock.locked()


def test_a_scope_cuts_a_wait_short() -> None:
    engine = Engine()
    scope, told = Clock(engine).scope(), list[str]()

    async def work() -> None:
        with scope:
            await Asking("ask")
            told.append("answered")
        told.append("after")

    engine.start("one", None, work())
    scope.cancel()
    assert told == ["after"]


def test_what_ends_with_its_world_wakes_nobody() -> None:
    engine = Engine()
    lock, order = Lock(engine), list[str]()

    async def work(name: str) -> None:
        await lock.acquire()
        try:
            order.append(name)
            await Asking("ask")
        finally:
            lock.release()

    for name in "ab":
        engine.start(name, name, work(name))
    engine.close()
    assert order == ["a"]
