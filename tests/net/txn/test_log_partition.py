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


def test_what_was_applied_before_a_partition_must_be_read_again_is_no_evidence() -> None:
    """The log was replaced, or cut below the position: records before the asked offset may be others."""
    part = LogPartition(0, Sink())
    assert not part.has(0)
    part.restart(5)
    assert (part.has(5), part.has(6)) == (True, False)
    part.stale = True
    assert not part.has(5)
    part.restart(3)
    assert (part.has(3), part.has(5)) == (True, False)
