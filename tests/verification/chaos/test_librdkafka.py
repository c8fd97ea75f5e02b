from verification.chaos.drivers.librdkafka import Offsets

PLACE = ("t", 0)


def test_offsets_that_were_returned_are_passed_on() -> None:
    offsets = Offsets()
    assert [offsets.told(PLACE, offset) for offset in (0, 1, 2, 10)] == [0, 1, 2, 10]


def test_what_is_counted_on_from_minus_one_was_not_told() -> None:
    offsets = Offsets()
    assert [offsets.told(PLACE, offset) for offset in (7, None, 0, 1, 2, 9, 10)] == [7, None, None, None, None, 9, 10]


def test_each_partition_counts_by_itself() -> None:
    offsets = Offsets()
    assert [offsets.told(PLACE, None), offsets.told(("t", 1), 0), offsets.told(PLACE, 0)] == [None, 0, None]
