from hypothesis import given
from hypothesis import strategies as st

from kproxy.proxy.transaction_stats import TransactionStats


def test_aborts_and_claims_by_their_words() -> None:
    stats = TransactionStats()
    stats.aborted("timeout")
    stats.aborted("timeout")
    stats.claimed("won")
    assert (stats.aborts, stats.claims) == ({"timeout": 2}, {"won": 1})


def test_a_partition_that_has_caught_up_is_reported_no_more() -> None:
    stats = TransactionStats()
    stats.stable("t", 0, 5)
    stats.stable("t", 1, 6)
    stats.stable("t", 0, 0)
    assert stats.last_stable_lag == {("t", 1): 6}


def test_those_that_lag_most_are_reported() -> None:
    stats = TransactionStats(partitions_max=2)
    for partition, lag in enumerate((5, 9, 7, 3)):
        stats.stable("t", partition, lag)
    assert stats.last_stable_lag == {("t", 1): 9, ("t", 2): 7}
    stats.stable("t", 1, 1)
    assert stats.last_stable_lag == {("t", 1): 1, ("t", 2): 7}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 9))))
def test_the_number_of_partitions_is_bounded(lags: list[tuple[int, int]]) -> None:
    stats = TransactionStats(partitions_max=3)
    for partition, lag in lags:
        stats.stable("t", partition, lag)
    assert len(stats.last_stable_lag) <= 3
    assert all(lag > 0 for lag in stats.last_stable_lag.values())
