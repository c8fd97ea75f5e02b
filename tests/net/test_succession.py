import trio
import trio.testing

from kproxy.net.succession import Succession


async def test_without_a_predecessor_nothing_is_waited_for() -> None:
    succession = Succession()
    with trio.fail_after(120):
        await succession.may_accept()
        await succession.alone()
    assert succession.ports == {}


async def test_each_step_waits_for_the_other_process() -> None:
    succession, told = Succession({1: 5}), []

    async def wait_for(name: str) -> None:
        await getattr(succession, name)()
        told.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_for, "alone")
        nursery.start_soon(wait_for, "may_accept")
        await trio.testing.wait_all_tasks_blocked()
        assert told == []
        succession.taken()
        await trio.testing.wait_all_tasks_blocked()
        assert told == ["may_accept"]
        succession.ended()
