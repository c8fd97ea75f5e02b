"""The case of the brokers' homes: every way carries transactions, and each has its figures."""

import pytest

from bench import homes as case
from bench.homes import homes


@pytest.mark.kafka
@pytest.mark.java
def test_all_ways_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "BLOCK", 2)
    figures = {figure.case: figure for figure in homes([2], rounds=1, records=500)}
    for way in ("relayed", "fenced", "by hand", "per request"):
        for name in ("p50", "p99"):
            figure = figures[f"begin to visible, 2 partitions, {way}: {name}"]
            assert (figure.direct or 0) > 0, figure
            assert (figure.kproxy or 0) > 0, figure
        assert (figures[f"transactions, 2 partitions, {way}"].kproxy or 0) > 0
        assert (figures[f"CPU of a transaction, 2 partitions, {way}"].kproxy or 0) > 0
    for way in ("plain", "plain of 0.10", "relayed", "fenced", "by hand"):
        figure = figures[f"CPU of a record in 500, 2 partitions, {way}"]
        assert (figure.kproxy or 0) > 0, figure
        assert (figure.met is None) == way.startswith("plain")
    assert len(figures) == 21
