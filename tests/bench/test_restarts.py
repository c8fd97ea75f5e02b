"""A producer that returns under its name, with a handful of requests: every row is measured."""

import pytest

from bench.restarts import restarts

pytestmark = [pytest.mark.kafka, pytest.mark.java]


def test_first_and_next_producers_are_measured_after_each_kind_of_end() -> None:
    figures = restarts(8_000_000)
    assert [figure.case for figure in figures] == [
        "first producer, clean end: CPU",
        "next producer of the name, after a clean end: CPU",
        "first producer, clean end, client without a name: CPU",
        "next producer of the name, after a clean end, client without a name: CPU",
        "first producer, broken connection: CPU",
        "next producer of the name, after a broken connection: CPU",
        "first producer, stop of kproxy: CPU",
        "next producer of the name, after a stop of kproxy: CPU",
    ]
    assert all(figure.kproxy for figure in figures)
