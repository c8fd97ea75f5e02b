"""What is called at the end of a turn of the event loop, in which order, and by how many tasks."""

import trio
import trio.testing

from kproxy.net.end_of_turn import EndOfTurn


async def test_it_is_called_once_for_all_tasks_of_a_turn_by_one_task_that_stays() -> None:
    called: list[str] = []
    async with trio.open_nursery() as nursery:
        turn = EndOfTurn(nursery)

        async def ask(name: str) -> None:
            before = len(called)
            turn.call(lambda: called.append(name))
            assert len(called) == before

        for expected in (2, 4):
            async with trio.open_nursery() as tasks:
                tasks.start_soon(ask, "a")
                tasks.start_soon(ask, "b")
            await trio.testing.wait_all_tasks_blocked()
            assert sorted(called[-2:]) == ["a", "b"]
            assert len(called) == expected
            assert len(nursery.child_tasks) == 1
        nursery.cancel_scope.cancel()


async def test_what_a_call_asks_for_belongs_to_the_next_turn() -> None:
    called: list[str] = []
    async with trio.open_nursery() as nursery:
        turn = EndOfTurn(nursery)

        def first() -> None:
            turn.call(lambda: called.append("second"))
            called.append("first")

        turn.call(first)
        await trio.testing.wait_all_tasks_blocked()
        assert called == ["first", "second"]
        nursery.cancel_scope.cancel()


async def test_a_shortened_turn_ends_with_its_block_also_where_that_fails() -> None:
    called: list[int] = []
    async with trio.open_nursery() as nursery:
        turn = EndOfTurn(nursery)
        try:
            with turn.shortened(), turn.shortened():
                turn.call(lambda: called.append(1))
                assert not called
                raise ValueError
        except ValueError:
            assert called == [1]
        assert not nursery.child_tasks  # nothing had to wait


async def test_nothing_is_called_once_its_nursery_is_cancelled() -> None:
    called: list[int] = []
    async with trio.open_nursery() as nursery:
        turn = EndOfTurn(nursery)
        turn.call(lambda: called.append(1))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    turn.call(lambda: called.append(2))
    await trio.testing.wait_all_tasks_blocked()
    assert called == [1]
