"""Which batch in the log is the one that was written at its place."""

from typing import Any

import pytest

from kproxy.codec.batch import Record, build_batch, read_header
from kproxy.codec.batch_header import BatchHeader
from kproxy.codec.records import CONTROL
from kproxy.codec.sequence import SEQUENCE_SPACE
from kproxy.dedup.kept.steps import Check


def header(sequence: int = 4, records: int = 3, **more: Any) -> BatchHeader:
    """The header of a batch at offset 50 of producer 7, whose epoch is 2."""
    rows = [Record(at, 1, None, b"x", ()) for at in range(records)]
    data = build_batch(rows, producer_id=7, producer_epoch=2, base_sequence=sequence)
    return read_header(data)._replace(base_offset=50, **more)


@pytest.mark.parametrize(
    ("there", "is_met"),
    [
        (header(), True),
        (header(records=4), True),
        (header(record_count=1), True),  # compaction has removed records
        (header(records=2), False),
        (header(5), False),
        (header(producer_epoch=1), False),
        (header(producer_id=8), False),
        (header(attributes=CONTROL), False),
    ],
)
def test_a_batch_at_a_place_is_known_by_its_numbers(there: BatchHeader, is_met: bool) -> None:
    assert Check(50, (6, 7), 2, 4, 6).is_met(there) is is_met


def test_a_record_is_known_wherever_its_batch_begins() -> None:
    assert Check(52, (7,), 2, 6, 6).is_met(header())
    assert not Check(52, (7,), 2, 5, 5).is_met(header())
    assert Check(52, (7,), 2, 0, 0).is_met(header(SEQUENCE_SPACE - 2))
    assert not Check(52, (7,), 2, 0, 0).is_met(header())


def test_where_the_sequence_is_not_known_any_batch_of_the_producer_is_taken_for_it_but_no_marker() -> None:
    assert Check(51, (7,), 5).is_met(header())
    assert not Check(51, (7,), 5).is_met(header(attributes=CONTROL))
