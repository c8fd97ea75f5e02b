"""Producer ids that say whose they are."""

from kproxy.dedup.kept.ids import GivenIds, is_given, successor
from kproxy.dedup.producer_ids import is_kproxy_producer_id, is_reserved_producer_id

IDS = GivenIds(b"s" * 16)


def test_an_id_belongs_to_whom_it_was_given_and_to_nobody_else() -> None:
    given = IDS.given(4711, b"me")
    assert given is not None
    assert is_given(given)
    assert not is_given(4711)
    assert not is_reserved_producer_id(given)
    assert IDS.belongs(given, b"me")
    assert not IDS.belongs(given, b"you")
    assert not GivenIds(b"t" * 16).belongs(given, b"me")
    assert not IDS.belongs(given + 1, b"me")
    assert not IDS.belongs(4711, b"me")


def test_there_is_no_room_for_a_mark_in_an_id_that_no_broker_counts_up_to() -> None:
    assert IDS.given(1 << 36, b"me") is None
    assert IDS.given(-1, b"me") is None


def test_ids_under_which_kproxy_continues_are_its_own_and_all_different() -> None:
    given = IDS.given(4711, b"me")
    assert given is not None
    following = [successor(given, nth) for nth in range(1, 100)]
    assert successor(given, 0) == given
    assert len(set(following)) == 99
    assert all(is_kproxy_producer_id(one) and one < 1 << 63 for one in following)
    assert successor(given, 3) == successor(given, 3)
