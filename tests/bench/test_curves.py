"""The curves have a point for each size and number of producers; what they cost is not judged."""

from collections.abc import Iterator, Sequence

import pytest

from bench import curves
from bench.targets import Target, open_sink, open_targets


@pytest.fixture(scope="module")
def targets() -> Iterator[Sequence[Target]]:
    with open_sink() as port, open_targets(port) as found:
        yield found


def test_each_batch_size_is_a_point(targets: Sequence[Target]) -> None:
    figures = curves.batch_sizes(targets, 1000, (100, 1_000_000))
    assert [(figure.curve, figure.at) for figure in figures] == [("batch size", "100 B"), ("batch size", "1 MB")]
    assert all(figure.relay and figure.kproxy for figure in figures)


def test_each_number_of_producers_is_a_point(targets: Sequence[Target]) -> None:
    figures = curves.producers(targets, 1000, (1, 20))
    assert [(figure.curve, figure.at) for figure in figures] == [("producers", "1"), ("producers", "20")]
    assert all(figure.relay and figure.kproxy for figure in figures)


def test_each_number_of_connections_of_one_client_is_a_point(targets: Sequence[Target]) -> None:
    figures = curves.connections(targets, 1000, (3,))
    assert [(figure.curve, figure.at) for figure in figures] == [("connections of one client", "3")]
    assert all(figure.relay and figure.kproxy for figure in figures)
