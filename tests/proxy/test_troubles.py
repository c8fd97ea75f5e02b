"""The troubles of a running kproxy: in words, since when, and those that hinder clients first."""

from collections.abc import Callable

import pytest

from kproxy.proxy.facts import BrokerDown, Trouble
from kproxy.proxy.stats import Stats
from kproxy.proxy.troubles import DownBroker, trouble_text, troubles
from kproxy.proxy.upstream_stats import Outage

NOW = 1_700_000_100.0
DOWN = BrokerDown(int(NOW - 90) * 1000, "cannot connect to kafka-2:9092: Connection refused", "tried again every 2 s")


def serving() -> Stats:
    stats = Stats()
    stats.upstream.reached = stats.upstream.listening = True
    stats.upstream.brokers = 3
    return stats


def found(stats: Stats, *down: DownBroker, **refused: int) -> list[Trouble]:
    return troubles(stats, down, refused, NOW)


def test_one_that_serves_has_none() -> None:
    stats = serving()
    stats.produce.oldest_unacknowledged = NOW - 59
    assert found(stats) == []


def hang(stats: Stats) -> None:
    stats.produce.oldest_unacknowledged = NOW - 61


def fill(stats: Stats) -> None:
    stats.clients.connections_limit = 2
    stats.clients.connections["bootstrap"] = 2


def lose(stats: Stats) -> None:
    stats.transactions.log_losses = {"truncated": 2}


def meet_unknown(stats: Stats) -> None:
    stats.transactions.unknown, stats.transactions.oldest_unknown = 1, NOW - 30


@pytest.mark.parametrize(
    ("harm", "what", "since", "severe"),
    [
        (hang, "a batch has had no outcome", NOW - 61, True),
        (fill, "max.connections = 2 is reached", None, True),
        (lose, "2 losses of records of the transaction log", None, False),
        (
            meet_unknown,
            "read_committed consumers wait at 1 producer ids that the transaction log does not know",
            NOW - 30,
            True,
        ),
    ],
)
def test_each_says_what_and_since_when(
    harm: Callable[[Stats], None], what: str, since: float | None, severe: bool
) -> None:
    stats = serving()
    harm(stats)
    [row] = found(stats)
    assert (row.what, row.severe) == (what, severe)
    assert row.since_ms == (None if since is None else int(since * 1000))


def test_an_outage_is_one_trouble_with_its_first_errors() -> None:
    stats = serving()
    stats.upstream.reached = False
    stats.upstream.outage = Outage(NOW - 45, tuple(f"kafka-{node}: refused" for node in range(5)), 1000)
    [row] = found(stats, DownBroker(2, "kafka-2:9092", DOWN))
    assert (row.what, row.since_ms, row.severe) == ("no broker answers", int(NOW - 45) * 1000, True)
    assert row.detail == (
        "kafka-0: refused; kafka-1: refused; kafka-2: refused; and 2 more; tried again every 1 s"
    )  # fmt: skip


def test_before_the_first_answer_and_at_the_end() -> None:
    stats = serving()
    stats.upstream.reached = False
    assert [row.what for row in found(stats)] == ["no broker has been reached yet"]
    stats.upstream.stopping = True
    assert [(row.what, row.severe) for row in found(stats)] == [("shutting down", False)]


def test_brokers_that_are_down_are_named_and_many_are_counted() -> None:
    [row] = found(serving(), DownBroker(2, "kafka-2:9092", DOWN))
    assert trouble_text(row) == (
        "broker 2 (kafka-2:9092) is down since 2023-11-14 22:13:30Z: cannot connect to kafka-2:9092: "
        "Connection refused; tried again every 2 s"
    )
    many = found(serving(), *(DownBroker(node, f"kafka-{node}:9092", DOWN) for node in range(14)))
    assert len(many) == 11
    assert many[-1].what == "4 more brokers are down"


def test_refusals_of_the_last_minute_are_a_warning_that_comes_last() -> None:
    rows = found(serving(), DownBroker(2, "kafka-2:9092", DOWN), max_connections=3, files=1)
    assert [row.severe for row in rows] == [True, False]
    assert trouble_text(rows[1]) == (
        "connections of clients were refused in the last minute: files 1, max_connections 3"
    )  # fmt: skip
