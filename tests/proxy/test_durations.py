from kproxy.proxy.durations import LATENCY_BUCKETS, Durations, quantile_ms


def test_a_bound_belongs_to_its_own_bucket() -> None:
    durations = Durations()
    for seconds in (*LATENCY_BUCKETS[:-1], 1e9):
        durations.observe(seconds)
    assert durations.buckets == [1] * len(LATENCY_BUCKETS)


def test_a_clock_that_has_stopped_falls_into_the_first_bucket() -> None:
    durations = Durations()
    durations.observe(0.0)
    assert durations.buckets[0] == 1


def test_sum_and_count() -> None:
    durations = Durations()
    durations.observe(0.25)
    durations.observe(0.5)
    assert (durations.count, durations.seconds_sum) == (2, 0.75)


def test_a_quantile_is_estimated_within_its_bucket_as_histogram_quantile_does() -> None:
    durations = Durations()
    assert quantile_ms(durations.buckets, 0.5) is None
    for seconds in (0.0001, 0.002, 0.002, 0.2, 60.0):
        durations.observe(seconds)
    # Of five: the 0.5th is halfway in the first bucket, the 2.5th at three quarters of 1 to 2.5 ms.
    assert [quantile_ms(durations.buckets, share) for share in (0.1, 0.5, 0.8)] == [0.25, 2.125, 250.0]


def test_a_quantile_beyond_the_last_bound_is_that_bound() -> None:
    durations = Durations()
    durations.observe(60.0)
    assert quantile_ms(durations.buckets, 0.99) == 30_000.0
