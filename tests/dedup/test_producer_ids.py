import pytest

from kproxy.codec.sequence import SEQUENCE_SPACE
from kproxy.dedup.lanes import Track
from kproxy.dedup.producer_ids import KPROXY_BIT, LAST_EPOCH, is_kproxy_producer_id
from tests.dedup.broker_model import NOW_S, Partition, batch_of

TOP = (1 << 31) - 1


@pytest.mark.parametrize("start", [TOP, TOP - 1, TOP - 2, TOP - 3, TOP - 4])
def test_a_broker_takes_what_follows_a_wrap_inside_or_between_batches(start: int) -> None:
    track, broker = Track((b"t", 0), KPROXY_BIT | 7, 0, next_sequence=start), Partition()
    for number in range(4):
        send = track.accept(batch_of(number, 3), 3, NOW_S)
        data = bytes(send.batch)
        error, offset = broker.append(data)
        assert track.answered(send, error, offset, -1)
        assert broker.append(data) == (0, offset), "its repeat is recognised"
    assert [written.number for written in broker.log] == [0, 1, 2, 3]
    assert track.next_sequence == (start + 12) % SEQUENCE_SPACE


def test_ids_of_kproxy_are_recognised() -> None:
    assert is_kproxy_producer_id(KPROXY_BIT)
    assert is_kproxy_producer_id(KPROXY_BIT | 4711)
    assert not is_kproxy_producer_id(4711)
    assert not is_kproxy_producer_id(-1), "no producer id has all bits set"
    assert not is_kproxy_producer_id(0)


def test_the_last_epoch_leaves_one_to_kafka() -> None:
    assert LAST_EPOCH + 1 == (1 << 15) - 1
