"""Epochs as a bitmap: what a set of them would say."""

from hypothesis import given
from hypothesis import strategies as st

from kproxy.txn.epoch_set import EpochSet
from kproxy.txn.ids import LAST_EPOCH

_epochs = st.sets(st.integers(0, LAST_EPOCH), max_size=30)


def filled(epochs: set[int]) -> EpochSet:
    found = EpochSet()
    for epoch in epochs:
        found.add(epoch)
    return found


@given(_epochs, _epochs)
def test_it_holds_what_was_put_in(epochs: set[int], others: set[int]) -> None:
    found = filled(epochs)
    assert list(found) == sorted(epochs)
    assert all(epoch in found for epoch in epochs)
    assert not any(epoch in found for epoch in others - epochs)
    assert (found == filled(others)) == (epochs == others)


@given(_epochs)
def test_its_bytes_say_the_same_and_end_with_the_last_epoch(epochs: set[int]) -> None:
    data = filled(epochs).to_bytes()
    assert EpochSet(data) == filled(epochs) == EpochSet(data + bytes(3))
    assert len(data) == (max(epochs) // 8 + 1 if epochs else 0) <= 4096


def test_its_bytes_never_change() -> None:
    assert filled({0, 3, 8, 17}).to_bytes().hex() == "090102"


def test_what_is_no_epoch_is_not_in_it() -> None:
    found = filled({0, 7})
    assert -1 not in found
    assert 32_768 not in found
    assert found != {0, 7}
