"""Transactional ids of the broker's for members: each is one member's until the log says that this is over."""

from kproxy.net.txn.native.slots import PREFIX, Slots
from kproxy.testing.txn_model import bodies
from kproxy.testing.txn_model.bodies import producer
from kproxy.txn.records import Entry

M, N = producer(200, 0), producer(201, 0)


def test_names_are_this_processs_alone() -> None:
    names = {Slots(instance, nonce).take() for instance in ("a", "b") for nonce in (bytes(16), bytes([1] * 16))}
    assert len(names) == 4
    assert all(name.startswith(PREFIX) for name in names)


def test_a_name_is_used_again_only_behind_the_record() -> None:
    slots = Slots("a", bytes(16))
    first = slots.take()
    slots.joined(M, first)
    assert slots.take() != first
    slots.heard(Entry("id", bodies.prepare(1, M)))
    slots.heard(Entry("id", bodies.ended(N)))
    third = slots.take()
    slots.heard(Entry("id", bodies.ended(M)))
    slots.heard(Entry("id", bodies.ended(M)))
    assert slots.take() == first
    assert slots.take() not in (first, third)


def test_what_was_given_back_is_free_at_once() -> None:
    slots = Slots("a", bytes(16))
    name = slots.take()
    slots.give_back(name)
    assert slots.take() == name
