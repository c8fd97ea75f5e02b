"""Work beside the loop: one piece at a time, and what an error leaves behind."""

import gc
import threading
import time

import pytest
import trio

from kproxy.budget import AT_ONCE_STEPS
from kproxy.errors import RemoteProtocolError
from kproxy.net.long_work import beside, done


async def test_it_is_done_in_another_thread_one_piece_at_a_time() -> None:
    at_work, most = 0, list[int]()

    def work() -> None:
        nonlocal at_work
        assert threading.current_thread() is not threading.main_thread()
        at_work += 1
        most.append(at_work)
        time.sleep(0.01)
        at_work -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(beside, work)
    assert most == [1] * 5
    assert await beside(lambda: 5) == 5


class Large:
    """What a piece of work has made when it fails."""


async def test_an_error_does_not_keep_what_the_work_had_made() -> None:
    def work() -> None:
        large = Large()
        raise RemoteProtocolError(f"{type(large)} is damaged")

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(RemoteProtocolError, match="damaged"):
            await beside(work)
        assert not [one for one in gc.get_objects() if isinstance(one, Large)]
    finally:
        gc.enable()


async def test_long_work_leaves_the_loop_by_its_steps_alone() -> None:
    assert await done(AT_ONCE_STEPS, threading.current_thread) is threading.main_thread()
    assert await done(AT_ONCE_STEPS + 1, threading.current_thread) is not threading.main_thread()
