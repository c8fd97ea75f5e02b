import pytest

from kproxy.spark.audit.engine import Engine
from kproxy.spark.audit.exposure import stable_offsets, unprotected, visibility
from tests.spark.audit.frames import LIMITS, Found, batch, span, tables


@pytest.fixture(scope="module")
def given(engine: Engine) -> Engine:
    return tables(
        engine,
        batches=[
            batch("orders", 0, 2),
            batch("orders", 2, 1),
            batch("orders", 3, 1, sequence=-1, producer_id=-1),
            batch("orders", 4, 5, visibility="aborted"),
            batch("orders", 9, 1, visibility="control", is_control=True, producer_id=-1),
            batch("orders", 10, 3, visibility="undecided"),
            batch("bills", 0, 10),
            batch("bills", 10, 1),
        ],
        spans=[span("orders", 13, stable=10), span("bills", start=10), span("empty", 0)],
    )


def test_the_share_without_a_producer_id(given: Engine) -> None:
    names = ("topic", "bytes", "unprotected_bytes", "protected_producers", "unprotected_partitions")
    assert Found(given, unprotected(LIMITS)).all(*names) == [("orders", 1200, 100, 1, 1)]


def test_bytes_by_visibility_of_what_was_not_judged_before(given: Engine) -> None:
    assert Found(given, visibility()).all("topic", "visibility", "batches", "records", "bytes") == [
        ("bills", "committed", 1, 1, 100),
        ("orders", "aborted", 1, 5, 500),
        ("orders", "committed", 3, 4, 400),
        ("orders", "control", 1, 1, 100),
        ("orders", "undecided", 1, 3, 300),
    ]


def test_records_below_and_above_the_stable_offset(given: Engine) -> None:
    names = ("topic", "stable_offset", "records_below", "records_above")
    assert Found(given, stable_offsets()).all(*names) == [
        ("bills", 1000, 1, 0),
        ("empty", 0, 0, 0),
        ("orders", 10, 9, 3),
    ]
