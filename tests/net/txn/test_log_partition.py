from kproxy.net.txn.log_partition import LogPartition
from tests.net.txn.log_harness import Sink


def test_the_lag_is_what_is_known_to_be_there_and_not_applied() -> None:
    part = LogPartition(0, Sink())
    assert part.lag == 0
    part.end = 7
    assert part.lag == 7
    part.restart(5)
    assert part.lag == 2
    part.restart(9)
    assert part.lag == 0
