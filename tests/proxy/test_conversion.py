"""What one request of an old format may cost, in all its partitions together."""

import pytest

from kproxy.budget import AT_ONCE_STEPS, CONVERTED_RECORD_STEPS, MOST_STEPS, RequestBudget, Work
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import PartitionData, ProduceLayout
from kproxy.proxy.conversion import Converted, conversion
from tests.codec.message_sets import entry, wrapper

MIB = 1 << 20
AT_ONCE_RECORDS = AT_ONCE_STEPS // CONVERTED_RECORD_STEPS
#: As documented.
MOST_RECORDS = 500_000
EMPTY = entry(0, None, None, magic=0)


def work(*sets: bytes, max_bytes: int = 64 * MIB) -> Work[Converted]:
    frame, partitions = bytearray(), []
    for index, data in enumerate(sets):
        partitions.append(PartitionData((b"t", index), len(frame), len(frame) + len(data)))
        frame += data
    layout = ProduceLayout(False, -1, 0, 0, partitions)
    return conversion(frame, layout, 7, MIB, RequestBudget(0, max_bytes, MOST_STEPS))


def at_once(*sets: bytes) -> Converted:
    short = work(*sets)
    assert short.at_once()
    return short.found


def whole(*sets: bytes, max_bytes: int = 64 * MIB) -> Converted:
    long = work(*sets, max_bytes=max_bytes)
    long.whole()
    return long.found


def bomb(records: int) -> bytes:
    return wrapper(1, [EMPTY * records], magic=0)


def test_what_is_short_is_converted_at_once() -> None:
    found = at_once(entry(0, None, b"a", magic=0), b"", bomb(1000))
    batches = [part for part in found.parts if not isinstance(part, int)]
    assert [sum(batch.record_count for batch in part) for part in batches] == [1, 0, 1000]
    assert found.arrival_ms == 7
    assert found.size == sum(len(batch.data) for part in found.parts if not isinstance(part, int) for batch in part)


@pytest.mark.parametrize(
    "sets",
    [
        [entry(0, None, bytes(2 * MIB), magic=0)],
        [bomb(AT_ONCE_RECORDS + 1)],
        [bomb(AT_ONCE_RECORDS), bomb(1)],
        [wrapper(1, [entry(0, None, bytes(3 * MIB), magic=0)], magic=0)],
    ],
    ids=["long", "many records", "many in all", "unpacks to much"],
)
def test_what_is_long_is_left_to_the_shell(sets: list[bytes]) -> None:
    long = work(*sets)
    assert not long.at_once()
    long.whole()
    assert long.at_once()
    assert not any(isinstance(part, int) for part in long.found.parts)


def test_records_in_wrappers_are_bounded_for_the_whole_request() -> None:
    half = bomb(MOST_RECORDS // 2)
    found = whole(half, half, bomb(1), entry(0, None, b"a", magic=0))
    counts = [part if isinstance(part, int) else sum(batch.record_count for batch in part) for part in found.parts]
    assert counts == [MOST_RECORDS // 2, MOST_RECORDS // 2, ErrorCode.MESSAGE_TOO_LARGE, 1]


def test_the_content_of_wrappers_is_bounded_for_the_whole_request() -> None:
    full = wrapper(1, [entry(0, None, bytes(600_000), magic=0)], magic=0)
    found = whole(full, full, max_bytes=MIB)
    assert [isinstance(part, int) for part in found.parts] == [False, True]
    assert found.parts[1] == ErrorCode.MESSAGE_TOO_LARGE


def test_a_damaged_partition_does_not_hinder_the_others() -> None:
    found = at_once(b"x" * 40, entry(0, None, b"a", magic=0))
    assert found.parts[0] == ErrorCode.CORRUPT_MESSAGE
    assert not isinstance(found.parts[1], int)


def test_a_batch_has_a_bounded_number_of_records() -> None:
    (part,) = whole(bomb(200_000)).parts
    assert not isinstance(part, int)
    assert len(part) > 1
    assert max(batch.record_count for batch in part) < 80_000
    assert sum(batch.record_count for batch in part) == 200_000
