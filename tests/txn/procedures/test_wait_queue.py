"""Partitions of who waits for a turn."""

import pytest

from kproxy.txn.procedures.wait_queue import WaitQueue


def test_partitions_are_there_as_long_as_somebody_waits_who_writes_to_them() -> None:
    line = WaitQueue()
    with line.waiting([("t", 0), ("t", 1)]):
        with line.waiting([("t", 1), ("t", 2)]):
            assert (len(line), list(line.places)) == (2, [("t", 0), ("t", 1), ("t", 2)])
        assert (len(line), list(line.places)) == (1, [("t", 0), ("t", 1)])
    assert (len(line), list(line.places)) == (0, [])


def test_who_fails_has_left_the_line() -> None:
    line = WaitQueue()
    with pytest.raises(ZeroDivisionError), line.waiting([("t", 0), ("t", 0)]):
        raise ZeroDivisionError
    assert (len(line), list(line.places)) == (0, [])
