"""Which entries are written again, and when; ``test_lane_retention`` shows it with a log."""

from math import inf

import pytest
import trio

from kproxy.dedup.lane_retention import Retention
from kproxy.net.lane_renewals import Renewals

pytestmark = pytest.mark.idle_clock


class Log:
    """What is put, and when it is durable."""

    def __init__(self) -> None:
        self.put: list[tuple[bytes, bytes]] = []
        self.written: list[trio.Event] = []
        self.renewals = Renewals(Retention(7_000), self.take)

    def take(self, key: bytes, value: bytes) -> trio.Event:
        self.put.append((key, value))
        self.written.append(trio.Event())
        return self.written[-1]

    def keep(self, key: bytes, value: bytes) -> None:
        written = trio.Event()
        written.set()
        self.renewals.keep(key, value, written)

    def renew(self, *, is_due: bool = True) -> list[tuple[bytes, bytes]]:
        self.put.clear()
        self.renewals.renew(is_due=is_due)
        return self.put


async def test_what_is_due_is_put_as_it_is_now_and_again_when_that_is_due() -> None:
    log = Log()
    log.keep(b"a", b"1")
    await trio.sleep(2)
    log.keep(b"a", b"2")
    log.keep(b"b", b"3")
    await trio.sleep(3.9)
    assert log.renew() == []
    await trio.sleep(1.1)
    assert log.renew() == [(b"a", b"2"), (b"b", b"3")]
    await trio.sleep(10)
    assert log.renew() == []  # they are in flight
    for written in log.written:
        written.set()
    assert log.renew() == [(b"a", b"2"), (b"b", b"3")]


async def test_what_is_dropped_is_not_put() -> None:
    log = Log()
    log.keep(b"a", b"1")
    log.keep(b"b", b"2")
    log.renewals.drop(b"a")
    log.renewals.drop(b"c")
    await trio.sleep(5)
    assert log.renew() == [(b"b", b"2")]


async def test_all_are_put_at_once_where_the_log_has_lost_them() -> None:
    log = Log()
    log.keep(b"a", b"1")
    assert log.renew(is_due=False) == [(b"a", b"1")]


async def test_what_was_inherited_is_as_old_as_it_is() -> None:
    log = Log()
    log.renewals.inherit(b"a", b"1", 5)
    log.renewals.inherit(b"b", b"2", 3.9)
    assert log.renew() == [(b"a", b"1")]


async def test_an_entry_is_as_old_as_the_last_one_that_is_durable() -> None:
    log, began = Log(), trio.current_time()
    usable_s = Retention(7_000).used_for_s
    assert log.renewals.usable_until(b"a") == inf
    written = trio.Event()
    log.renewals.keep(b"a", b"1", written)
    assert log.renewals.usable_until(b"a") == inf  # nobody uses it yet
    await trio.sleep(1)
    written.set()
    assert log.renewals.usable_until(b"a") == began + usable_s
    await trio.sleep(4)
    log.renew()
    assert log.renewals.usable_until(b"a") == began + usable_s
    log.written[-1].set()
    assert log.renewals.usable_until(b"a") == began + 5 + usable_s


async def test_an_entry_whose_renewal_is_in_flight_is_as_old_as_the_one_before() -> None:
    """Nobody has asked for its age before: if it could be used for ever, its lease would not end in time."""
    log, began = Log(), trio.current_time()
    log.keep(b"a", b"1")
    await trio.sleep(5)
    log.renew()
    assert log.renewals.usable_until(b"a") == began + Retention(7_000).used_for_s
