"""Turns at an id: in order, and what waits for data brokers makes way for an abort."""

from functools import partial

import pytest
import trio
import trio.testing

from kproxy.txn.procedures.id_lock import IdLock, Interrupted
from tests.txn.procedures.memory_log import TRIO_TIME


async def test_a_wait_without_an_abort_gives_its_result() -> None:
    turns = IdLock(TRIO_TIME)

    async def work() -> int:
        assert turns.is_waiting
        return 5

    async with turns.ordinary():
        assert await turns.wait(work) == 5
        assert not turns.is_waiting


async def test_errors_of_what_is_waited_for_are_raised_as_they_are() -> None:
    async def work() -> int:
        raise OSError("no leader")

    turns = IdLock(TRIO_TIME)
    async with turns.ordinary():
        with pytest.raises(OSError, match="no leader"):
            await turns.wait(work)
        assert not turns.is_waiting


async def test_an_abort_ends_the_wait_and_those_of_all_who_were_in_line_before_it() -> None:
    turns, order = IdLock(TRIO_TIME), list[str]()

    async def write(name: str) -> None:
        async with turns.ordinary():
            try:
                await turns.wait(trio.sleep_forever)
            except Interrupted as error:
                order.append(f"{name}: {error.message}")

    async def abort() -> None:
        async with turns.urgent("aborted"):
            order.append("abort")

    async with trio.open_nursery() as nursery:
        for name in ("first", "second", "third"):
            nursery.start_soon(write, name)
            await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(abort)
        await trio.testing.wait_all_tasks_blocked()
    assert order == ["first: aborted", "second: aborted", "third: aborted", "abort"]


async def test_a_wait_that_ends_as_the_abort_comes_is_interrupted_too() -> None:
    """What follows such a wait may commit: it has to hear of the abort."""
    turns, done = IdLock(TRIO_TIME), trio.Event()

    async def write() -> None:
        async with turns.ordinary():
            with pytest.raises(Interrupted):
                await turns.wait(done.wait)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        done.set()
        async with turns.urgent("aborted"):
            pass


async def test_waits_continue_after_the_abort(autojump_clock: trio.testing.MockClock) -> None:
    turns = IdLock(TRIO_TIME)
    async with turns.urgent("aborted"):
        await turns.wait(partial(trio.sleep, 1))
    async with turns.ordinary():
        await turns.wait(partial(trio.sleep, 1))


async def test_an_abort_that_is_cancelled_leaves_no_trace(autojump_clock: trio.testing.MockClock) -> None:
    turns = IdLock(TRIO_TIME)

    async def abort() -> None:
        with trio.move_on_after(1):
            async with turns.urgent("aborted"):
                pytest.fail("it is not its turn")

    async with turns.ordinary():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(abort)
        await turns.wait(partial(trio.sleep, 1))


async def test_an_abort_that_is_cancelled_has_ended_the_wait_all_the_same() -> None:
    turns, told = IdLock(TRIO_TIME), list[str]()

    async def write() -> None:
        async with turns.ordinary():
            try:
                await turns.wait(trio.sleep_forever)
            except Interrupted as error:
                told.append(error.message)

    async def abort() -> None:
        async with turns.urgent("aborted"):
            raise AssertionError("cancelled before it had the turn")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as inner:
                inner.start_soon(abort)
                await trio.lowlevel.checkpoint()
                scope.cancel()
    assert told == ["aborted"]
    assert not turns.lock.locked()


async def test_a_wait_that_ends_long_after_its_aborts_names_the_first_of_them() -> None:
    turns, told, go = IdLock(TRIO_TIME), list[str](), trio.Event()

    async def work() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await go.wait()

    async def write() -> None:
        async with turns.ordinary():
            try:
                await turns.wait(work)
            except Interrupted as error:
                told.append(error.message)

    async def abort(why: str) -> None:
        async with turns.urgent(why):
            pass

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as aborting:
            aborting.start_soon(abort, "cancelled")
            await trio.testing.wait_all_tasks_blocked()
            aborting.cancel_scope.cancel()
        go.set()
        await trio.testing.wait_all_tasks_blocked()
        go = trio.Event()
        nursery.start_soon(write)
        for why in ("first", "second"):
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(abort, why)
        await trio.testing.wait_all_tasks_blocked()
        go.set()
    assert told == ["cancelled", "first"]


async def test_a_turn_that_nobody_has_begins_without_a_checkpoint() -> None:
    turns = IdLock(TRIO_TIME)
    with trio.testing.assert_no_checkpoints():
        async with turns.ordinary():
            assert turns.lock.locked()
    assert not turns.lock.locked()


async def test_a_turn_goes_to_the_request_that_waits_and_not_to_one_that_comes_as_it_is_free() -> None:
    turns, order = IdLock(TRIO_TIME), list[str]()

    async def write() -> None:
        async with turns.ordinary():
            order.append("waits")

    async with trio.open_nursery() as nursery:
        async with turns.ordinary():
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
        async with turns.ordinary():
            order.append("comes later")
    assert order == ["waits", "comes later"]


async def test_a_turn_that_fails_leaves_the_next_one_free() -> None:
    turns = IdLock(TRIO_TIME)
    with pytest.raises(OSError, match="broken"):
        async with turns.ordinary():
            raise OSError("broken")
    assert not turns.lock.locked()
