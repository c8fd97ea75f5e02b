"""What one message may cost, and where its work is done."""

from functools import partial

import pytest

from kproxy.budget import (
    AT_ONCE_BYTES,
    AT_ONCE_STEPS,
    ELEMENT_STEPS,
    FREE_STEPS,
    MOST_STEPS,
    UNLIMITED,
    RequestBudget,
    Share,
    TooManyElements,
    Where,
    Work,
    is_long,
    standalone,
    unbounded,
    where,
)
from kproxy.proxy.context import Policy


def test_elements_are_taken_before_they_are_decoded_and_what_is_left_is_never_exceeded() -> None:
    budget = RequestBudget(3, 0, 0)
    budget.take_elements(2)
    assert budget.elements == 1
    budget.take_elements(1)
    with pytest.raises(TooManyElements, match=r"request\.max\.elements") as refused:
        budget.take_elements(1)
    assert refused.value.refusal == "elements"


def test_what_is_refused_takes_nothing() -> None:
    budget = RequestBudget(2, 0, 10)
    with pytest.raises(TooManyElements):
        budget.take_elements(3)
    assert not budget.take_steps(11)
    assert budget == RequestBudget(2, 0, 10)
    assert budget.take_steps(10)
    assert not budget.take_steps(1)


def test_decompressed_bytes_are_taken_afterwards() -> None:
    budget = RequestBudget(0, 10, 0)
    budget.take_bytes(4)
    assert budget.bytes == 6
    budget.take_bytes(7)
    assert budget.bytes == 0


@pytest.mark.parametrize(
    ("steps", "place"),
    [
        (0, Where.AT_ONCE),
        (FREE_STEPS, Where.AT_ONCE),
        (FREE_STEPS + 1, Where.IN_TURN),
        (AT_ONCE_STEPS, Where.IN_TURN),
        (AT_ONCE_STEPS + 1, Where.BESIDE),
    ],
)
def test_steps_alone_say_where_work_is_done(steps: int, place: Where) -> None:
    assert where(steps) is place
    assert is_long(steps) == (place is Where.BESIDE)


def test_a_share_makes_the_budgets_of_its_peer_by_what_is_configured_now() -> None:
    share = Share(Policy(max_request_elements=10, max_response_elements=20, max_decompressed_bytes=30))
    assert share.of_request() == RequestBudget(10, 30, MOST_STEPS)
    assert share.of_response() == RequestBudget(20, 30, MOST_STEPS)
    share.of_request().take_elements(10)
    assert share.of_request().elements == 10, "each message has its own"


def test_a_part_has_no_more_than_the_whole_nor_than_is_done_at_once() -> None:
    part = unbounded().at_once()
    assert part == RequestBudget(AT_ONCE_STEPS // ELEMENT_STEPS, AT_ONCE_BYTES, AT_ONCE_STEPS, is_part=True)
    assert RequestBudget(1, 2, 3).at_once() == RequestBudget(1, 2, 3), "that is all"


def test_what_is_done_on_the_loop_is_bounded_apart_from_what_is_done_beside_it() -> None:
    spent = RequestBudget(1, 0, 0).on_loop()
    assert spent == RequestBudget(1, 4 * AT_ONCE_BYTES, 4 * AT_ONCE_STEPS)


def _spend(elements: int, budget: RequestBudget) -> int:
    budget.take_elements(elements)
    return elements


def test_work_is_done_at_once_if_a_part_of_the_budget_suffices() -> None:
    work = Work(unbounded(), partial(_spend, 100))
    assert work.at_once()
    assert work.found == 100


@pytest.mark.parametrize("steps", [0, AT_ONCE_STEPS + 1], ids=["seen when it is done", "known before"])
def test_long_work_is_left_to_others_and_not_done_again(steps: int) -> None:
    elements = 100 if steps else AT_ONCE_STEPS // ELEMENT_STEPS + 1
    work = Work(unbounded(), partial(_spend, elements), steps)
    assert not work.at_once()
    work.whole()
    assert work.at_once()
    assert work.found == elements


def test_work_that_the_whole_budget_does_not_suffice_for_is_refused_wherever_that_is_found() -> None:
    with pytest.raises(TooManyElements):
        Work(RequestBudget(10, 0, 0), partial(_spend, 11)).at_once()
    most = AT_ONCE_STEPS
    long = Work(RequestBudget(most, 0, 0), partial(_spend, most + 1))
    assert not long.at_once()
    with pytest.raises(TooManyElements):
        long.whole()


def test_a_message_of_which_nothing_is_known_is_bounded_all_the_same() -> None:
    assert standalone().elements < UNLIMITED
    assert standalone().steps == MOST_STEPS
