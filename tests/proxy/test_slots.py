import random

from kproxy.budget import Share
from kproxy.proxy.context import Policy
from kproxy.proxy.slots import SLOT_BYTES, AnswerOrder, Slot


def slot(number: int, size: int = 10) -> Slot:
    return Slot(0, 7, number, 0.0, size)


def test_answers_wait_for_those_before_them() -> None:
    order = AnswerOrder(Share(Policy()))
    first, second, third = (slot(number) for number in range(3))
    for each in (first, second, third):
        order.open(each)
    third.answer = (b"3",)
    assert order.take_ready() == []
    first.answer = (b"1",)
    assert order.take_ready() == [first]
    assert order.is_next(second)
    assert not order.is_next(third)
    second.answer = ()
    assert order.take_ready() == [second, third]
    assert order.take_ready() == []
    assert not order.is_next(third)


def test_an_empty_answer_is_an_answer() -> None:
    order, silent = AnswerOrder(Share(Policy())), slot(1)
    order.open(silent)
    silent.answer = ()
    assert order.take_ready() == [silent]


def test_bytes_are_held_until_the_answer_is_taken() -> None:
    order = AnswerOrder(share := Share(Policy()))
    first, second = slot(1, 100), slot(2, 30)
    order.open(first)
    order.open(second)
    assert (share.held, len(order)) == (130 + 2 * SLOT_BYTES, 2)
    second.answer = (b"",)
    order.take_ready()
    assert (share.held, len(order)) == (130 + 2 * SLOT_BYTES, 2)
    first.answer = (b"",)
    order.take_ready()
    assert (share.held, len(order)) == (0, 0)


def test_whatever_order_they_get_ready_in() -> None:
    chance = random.Random(1)
    for _ in range(50):
        order, slots = AnswerOrder(share := Share(Policy())), [slot(number) for number in range(8)]
        for each in slots:
            order.open(each)
        taken = []
        for each in chance.sample(slots, len(slots)):
            each.answer = (b"x",)
            taken += order.take_ready()
        assert taken == slots
        assert share.held == 0


def test_dropped_slots_hold_nothing() -> None:
    order = AnswerOrder(share := Share(Policy()))
    order.open(slot(1))
    order.drop()
    assert not share.held
    assert not len(order)


def test_what_is_charged_to_a_slot_is_held_until_it_is_answered() -> None:
    order, one = AnswerOrder(share := Share(Policy())), slot(1)
    order.open(one)
    before = share.held
    order.charge(one, 500)
    assert share.held == before + 500
    one.answer = ()
    order.take_ready()
    assert not share.held
