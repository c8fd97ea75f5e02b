"""Work that continues without the caller that asked for it, and the error in which it ends."""

import pytest
import trio
import trio.testing

from kproxy.codec.messages import ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.net.txn.jobs import Jobs
from kproxy.txn.txn_error import TxnError
from tests.net.txn.log_harness import PATIENCE


async def test_the_result_is_returned_and_the_work_counted(nursery: trio.Nursery) -> None:
    jobs, go = Jobs(nursery), trio.Event()

    async def work() -> int:
        await go.wait()
        return 7

    result = jobs.start(work)
    await trio.testing.wait_all_tasks_blocked()
    assert jobs.count == 1
    go.set()
    with trio.fail_after(PATIENCE):
        assert (await result(), await result()) == (7, 7)
    await trio.testing.wait_all_tasks_blocked()
    assert jobs.count == 0


async def test_it_continues_when_nobody_waits_any_more(nursery: trio.Nursery) -> None:
    jobs, go, done = Jobs(nursery), trio.Event(), trio.Event()

    async def work() -> None:
        await go.wait()
        done.set()

    with trio.CancelScope() as scope:
        scope.cancel()
        await jobs.run(work)
    go.set()
    with trio.fail_after(PATIENCE):
        await done.wait()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TxnError(ErrorCode.PRODUCER_FENCED, "why"), ErrorCode.PRODUCER_FENCED),
        (OSError("why"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (RemoteProtocolError("why"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ZeroDivisionError("why"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_every_error_is_one_of_a_transaction(nursery: trio.Nursery, error: Exception, told: ErrorCode) -> None:
    async def work() -> None:
        raise error

    with pytest.raises(TxnError) as within:
        await Jobs.within(work)
    assert within.value.error_code is told

    def work_at_once() -> None:
        raise error

    with pytest.raises(TxnError) as at_once:
        Jobs.do(work_at_once)
    assert at_once.value.error_code is told
    result = Jobs(nursery).start(work)
    for _ in range(2):
        with pytest.raises(TxnError, match="why") as caught:
            await result()
        assert caught.value.error_code == told


async def test_who_waits_hears_of_a_stop() -> None:
    async def wait(result: "object") -> None:
        with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
            await result()  # type: ignore[operator]

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as waiting, trio.open_nursery() as working:
            result = Jobs(working).start(trio.sleep_forever)
            waiting.start_soon(wait, result)
            await trio.testing.wait_all_tasks_blocked()
            working.cancel_scope.cancel()


async def test_a_part_of_work_is_done_by_who_asks_for_it(nursery: trio.Nursery) -> None:
    async def work() -> trio.lowlevel.Task:
        return trio.lowlevel.current_task()

    assert await Jobs.within(work) is trio.lowlevel.current_task()
    assert await Jobs(nursery).run(work) is not trio.lowlevel.current_task()


async def test_a_cancelled_part_of_work_stays_cancelled() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await Jobs.within(trio.sleep_forever)
    assert scope.cancelled_caught
