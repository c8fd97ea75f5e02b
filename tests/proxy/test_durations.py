from kproxy.proxy.durations import LATENCY_BUCKETS, Durations


def test_a_bound_belongs_to_its_own_bucket() -> None:
    durations = Durations()
    for seconds in (*LATENCY_BUCKETS[:-1], 1e9):
        durations.observe(seconds)
    assert durations.buckets == [1] * len(LATENCY_BUCKETS)


def test_a_clock_that_stands_still_falls_into_the_first_bucket() -> None:
    durations = Durations()
    durations.observe(0.0)
    assert durations.buckets[0] == 1


def test_sum_and_count() -> None:
    durations = Durations()
    durations.observe(0.25)
    durations.observe(0.5)
    assert (durations.count, durations.seconds_sum) == (2, 0.75)
