from hypothesis import given
from hypothesis import strategies as st

from kproxy.proxy.quotas.buckets import Bucket, Buckets

LONGEST = 5.0


def test_what_comes_in_time_need_not_wait() -> None:
    bucket = Bucket(100, 0.0)
    assert [bucket.take(50, 100, now / 2, LONGEST) for now in range(20)] == [0.0] * 20


def test_who_takes_too_much_waits_until_it_is_paid() -> None:
    bucket = Bucket(100, 0.0)
    assert bucket.take(100, 100, 0.0, LONGEST) == 0.0
    assert bucket.take(100, 100, 0.0, LONGEST) == 1.0
    assert bucket.take(0, 100, 0.5, LONGEST) == 0.5
    assert bucket.take(0, 100, 2.0, LONGEST) == 0.0


def test_nobody_pays_for_ever_for_one_request() -> None:
    bucket = Bucket(100, 0.0)
    assert bucket.take(1_000_000, 100, 0.0, LONGEST) == LONGEST
    assert bucket.take(0, 100, LONGEST, LONGEST) == 0.0


def test_a_new_rate_holds_at_once() -> None:
    bucket = Bucket(100, 0.0)
    bucket.take(200, 100, 0.0, LONGEST)
    assert bucket.take(0, 50, 0.0, LONGEST) == 2.0


@given(st.lists(st.tuples(st.integers(0, 500), st.floats(0, 10)), max_size=50), st.integers(1, 200))
def test_a_wait_is_bounded_and_who_waits_gets_no_more_than_the_rate(steps: list[tuple[int, float]], rate: int) -> None:
    bucket, now, taken, forgiven = Bucket(rate, 0.0), 0.0, 0, 0.0
    for amount, pause in steps:
        wait = bucket.take(amount, rate, now, LONGEST)
        assert 0.0 <= wait <= LONGEST
        taken += amount
        forgiven += max(amount - rate * LONGEST, 0)
        now += max(wait, pause)
    assert taken <= rate * (now + 1) + forgiven + 1e-3


def test_a_clock_that_steps_back_gives_nothing() -> None:
    bucket = Bucket(100, 10.0)
    assert bucket.take(150, 100, 10.0, LONGEST) == 0.5
    assert bucket.take(0, 100, 5.0, LONGEST) == 0.5


def test_a_flood_of_names_is_bounded() -> None:
    buckets: Buckets[int] = Buckets(LONGEST)
    buckets.take(-1, 300, 100, 0.0)
    for number in range(25_000):
        buckets.take(number, 1, 100, number / 10_000)
    assert len(buckets) <= 10_000
    busy: Buckets[int] = Buckets(LONGEST)
    for number in range(25_000):
        busy.take(number, 300, 100, 0.0)
    assert len(busy) <= 10_000
    assert busy.take(24_999, 0, 100, 0.0) == 2.0
