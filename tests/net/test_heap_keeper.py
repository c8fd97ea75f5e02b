from kproxy.net.heap_keeper import HeapKeeper

MIB = 1 << 20


def test_the_heap_is_trimmed_after_a_peak_and_not_too_often() -> None:
    trims: list[int] = []
    keeper = HeapKeeper(lambda: trims.append(1))
    keeper.note(3 * MIB)
    assert not keeper.look(0, 0.0)
    keeper.note(16 * MIB)
    assert not keeper.look(8 * MIB, 0.0)
    assert keeper.look(MIB, 0.0)
    assert not keeper.look(0, 5.0)
    keeper.note(16 * MIB)
    assert keeper.look(0, 5.0)
    keeper.note(16 * MIB)
    assert not keeper.look(0, 6.0)
    assert keeper.look(0, 7.0)
    assert len(trims) == 3
