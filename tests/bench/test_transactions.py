"""The case of transactions: a row when it is there, and a cell that ends whether or not it is done."""

import pytest

from bench.processes import free_port
from bench.transactions import Run, measure, transactions


@pytest.mark.kafka
@pytest.mark.java
def test_both_ways_are_measured() -> None:
    figures = list(transactions([2], 60))
    assert [figure.case for figure in figures] == [
        "transactions, 2 partitions",
        "begin to commit, 2 partitions, p50",
        "begin to visible, 2 partitions, p50",
    ]
    for figure in figures:
        assert (figure.direct or 0) > 0, figure
        assert (figure.kproxy or 0) > 0, figure


def test_a_cell_that_gets_nowhere_ends_and_says_so() -> None:
    run = measure(f"127.0.0.1:{free_port()}", "topic", 2, 0.5)
    assert (run.rate, run.commit_ms, run.visible_ms) == (None, None, None)
    assert run.lacks("direct") == "direct: 0 of 40 committed, 0 of 30 seen in time"


def test_what_was_done_in_time_is_reported() -> None:
    run = Run(commits=[0.5, 0.25, 0.25], visible=[0.03])
    assert (run.rate, run.commit_ms, run.visible_ms) == (3.0, 250.0, 30.0)
    assert run.lacks("kproxy") == "kproxy: 3 of 40 committed, 1 of 30 seen in time"


def test_a_cell_that_came_to_its_end_lacks_nothing() -> None:
    assert Run(commits=[0.1] * 40, visible=[0.1] * 30).lacks("kproxy") == ""
