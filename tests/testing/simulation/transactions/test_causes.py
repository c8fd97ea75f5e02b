"""What a client may be told that can only be closed."""

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.testing.simulation.transactions.causes import Causes
from kproxy.testing.simulation.transactions.history import TransactionHistory

FENCED = ErrorCode.PRODUCER_FENCED
UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
pytestmark = pytest.mark.usefixtures("autojump_clock")


def of(history: TransactionHistory) -> Causes:
    made = Causes(history, "id", 0, 3_000)
    made.initializes()
    return made


async def test_nothing_has_happened() -> None:
    for is_native in (False, True):
        causes = of(TransactionHistory(is_native=is_native))
        assert not any(causes.has(code) for code in (FENCED, UNKNOWN, ErrorCode.INVALID_TXN_STATE))


async def test_others_may_have_the_id() -> None:
    assert of(TransactionHistory(shared={"id"})).has(FENCED)
    assert of(TransactionHistory(loose={"id"})).has(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert not of(TransactionHistory(shared={"other"})).has(FENCED)


async def test_ids_expire() -> None:
    assert of(TransactionHistory(ids_expire=True)).has(UNKNOWN)
    causes = of(TransactionHistory(expired={"id"}, is_native=True))
    assert causes.has(UNKNOWN)
    assert causes.has(FENCED)


@pytest.mark.parametrize("is_native", [False, True])
async def test_brokers_fence_who_takes_too_long(is_native: bool) -> None:
    causes = of(TransactionHistory(is_native=is_native))
    causes.works()
    await trio.sleep(2.9)
    causes.works()
    assert not causes.has(FENCED)
    await trio.sleep(0.1)
    causes.ended()
    assert causes.has(FENCED) is is_native
    assert not causes.has(UNKNOWN)


async def test_a_transaction_that_ended_in_time_is_no_cause() -> None:
    causes = of(TransactionHistory(is_native=True))
    causes.works()
    causes.ended()
    await trio.sleep(9.0)
    assert not causes.has(FENCED)


@pytest.mark.parametrize("is_native", [False, True])
async def test_a_kproxy_that_was_killed_does_not_know_its_client(is_native: bool) -> None:
    history = TransactionHistory(is_native=is_native)
    causes = of(history)
    await trio.sleep(1.0)
    history.killed[1] = trio.current_time()
    assert not causes.has(UNKNOWN)
    history.killed[0] = trio.current_time()
    assert causes.has(UNKNOWN) is causes.has(FENCED) is is_native
    await trio.sleep(1.0)
    causes.initializes()
    assert not causes.has(UNKNOWN)
