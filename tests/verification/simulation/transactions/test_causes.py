"""What a client may be told that can only be closed."""

import pytest
import trio
from trio.testing import MockClock

from kproxy.codec.messages import ErrorCode
from verification.simulation.transactions.causes import Causes
from verification.simulation.transactions.history import Asked, TransactionHistory
from verification.simulation.transactions.plan import IDS_EXPIRE_MS

FENCED = ErrorCode.PRODUCER_FENCED
UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING


def of(history: TransactionHistory) -> Causes:
    made = Causes(history, "id", (0,), 3_000)
    made.initializes(answered(history))
    made.initialized()
    return made


def answered(history: TransactionHistory, name: str = "id") -> Asked:
    """An InitProducerId that is sent and answered now."""
    asked = history.asks_identity(name, trio.current_time())
    asked.over = asked.sent
    return asked


async def test_nothing_has_happened(autojump_clock: MockClock) -> None:
    for is_native in (False, True):
        causes = of(TransactionHistory(is_native=is_native))
        assert not any(causes.has(code) for code in (FENCED, UNKNOWN, ErrorCode.INVALID_TXN_STATE))


async def test_another_init_producer_id_explains_a_fence_if_it_may_have_come_later(autojump_clock: MockClock) -> None:
    history = TransactionHistory()
    answered(history)
    await trio.sleep(1.0)
    causes = of(history)
    assert not causes.has(FENCED)  # the former producer was answered before
    answered(history, "other")
    await trio.sleep(1.0)
    assert not causes.has(ErrorCode.INVALID_PRODUCER_EPOCH)
    answered(history)
    assert causes.has(FENCED)
    assert causes.has(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert not of(history).has(UNKNOWN)


async def test_a_request_without_an_answer_explains_a_fence_for_a_while(autojump_clock: MockClock) -> None:
    history = TransactionHistory()
    stray = history.asks_identity("id", trio.current_time())
    history.strays(stray, trio.current_time())
    await trio.sleep(29.0)
    assert of(history).has(FENCED)
    await trio.sleep(2.0)
    assert not of(history).has(FENCED)


async def test_a_late_copy_of_its_own_request_explains_a_fence(autojump_clock: MockClock) -> None:
    history = TransactionHistory()
    causes = of(history)
    (own,) = history.asked["id"]
    history.strays(own, trio.current_time())
    assert causes.has(FENCED)


async def test_ids_expire_that_are_not_used(autojump_clock: MockClock) -> None:
    history = TransactionHistory(ids_expire=True)
    causes = of(history)
    await trio.sleep(3.9)
    assert not causes.has(UNKNOWN)
    causes.ended()  # nothing had begun
    await trio.sleep(0.1)
    assert causes.has(UNKNOWN)
    causes.works()
    causes.ended()
    assert not causes.has(UNKNOWN)
    history.jumped = True
    assert causes.has(UNKNOWN)


async def test_brokers_give_up_ids(autojump_clock: MockClock) -> None:
    history = TransactionHistory(is_native=True)
    causes = of(history)
    history.expired["id"] = trio.current_time()
    assert causes.has(UNKNOWN)
    assert causes.has(FENCED)
    await trio.sleep(1.0)
    assert not of(history).has(UNKNOWN)


async def test_an_identity_may_be_lost_before_the_request_that_names_it(autojump_clock: MockClock) -> None:
    history = TransactionHistory(is_native=True)
    causes = of(history)
    await trio.sleep(1.0)
    history.expired["id"] = trio.current_time()
    await trio.sleep(1.0)
    causes.initializes(answered(history), again=True)
    assert causes.has(FENCED)
    causes.initialized()
    assert not causes.has(FENCED)


async def test_its_own_former_request_explains_no_fence(autojump_clock: MockClock) -> None:
    history = TransactionHistory()
    causes = of(history)
    await trio.sleep(1.0)
    causes.initializes(answered(history), again=True)
    assert not causes.has(FENCED)
    await trio.sleep(1.0)
    answered(history)
    assert causes.has(FENCED)


@pytest.mark.parametrize("is_native", [False, True])
async def test_brokers_fence_who_takes_too_long(is_native: bool, autojump_clock: MockClock) -> None:
    causes = of(TransactionHistory(is_native=is_native))
    causes.works()
    await trio.sleep(2.9)
    causes.works()
    assert not causes.has(FENCED)
    await trio.sleep(0.1)
    causes.ended()
    assert causes.has(FENCED) is is_native
    assert not causes.has(UNKNOWN)


async def test_a_transaction_that_ended_in_time_is_no_cause(autojump_clock: MockClock) -> None:
    causes = of(TransactionHistory(is_native=True))
    causes.works()
    causes.ended()
    await trio.sleep(9.0)
    assert not causes.has(FENCED)


@pytest.mark.parametrize("is_native", [False, True])
async def test_a_kproxy_that_was_killed_does_not_know_its_client(is_native: bool, autojump_clock: MockClock) -> None:
    history = TransactionHistory(is_native=is_native)
    causes = of(history)
    await trio.sleep(1.0)
    history.killed[1] = trio.current_time()
    assert not causes.has(UNKNOWN)
    history.killed[0] = trio.current_time()
    assert causes.has(UNKNOWN) is causes.has(FENCED) is is_native
    await trio.sleep(1.0)
    causes.initializes(answered(history))
    causes.initialized()
    assert not causes.has(UNKNOWN)


@pytest.mark.parametrize("killed", [False, True])
async def test_an_id_may_expire_after_its_transaction_was_aborted(autojump_clock: MockClock, killed: bool) -> None:
    history = TransactionHistory(ids_expire=True)
    causes = of(history)
    causes.works()
    await trio.sleep(1.0)
    if killed:
        history.killed[0] = trio.current_time()  # another kproxy aborts it
    await trio.sleep(IDS_EXPIRE_MS / 1000)
    causes.ended()
    assert causes.has(UNKNOWN) is killed
    await trio.sleep(2.1)
    causes = of(history)
    causes.works()
    await trio.sleep((3_000 + IDS_EXPIRE_MS) / 1000)  # its time-out, and what an id may be unused
    causes.ended()
    assert causes.has(UNKNOWN)
    causes.works()
    assert causes.has(UNKNOWN)  # an abort of what the time-out has aborted succeeds, though the id has expired
    causes.initializes(Asked(trio.current_time()))
    assert not causes.has(UNKNOWN)


@pytest.mark.parametrize("continues", [False, True])
async def test_a_kill_explains_a_fence_unless_kproxy_continues_for_the_client(
    continues: bool, autojump_clock: MockClock
) -> None:
    history = TransactionHistory(is_native=True, continues=continues)
    causes, second = of(history), Causes(history, "other", (0,), 3_000, second_version=True)
    second.initializes(answered(history, "other"))
    await trio.sleep(1.0)
    history.crashed(0, trio.current_time())
    for code in (FENCED, UNKNOWN):
        assert causes.has(code) is not continues
        assert second.has(code)
