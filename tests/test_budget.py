"""What one message may cost, and where its work is done."""

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
    TooManySteps,
    Where,
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


def test_steps_are_taken_and_an_error_says_for_what_they_did_not_suffice() -> None:
    budget = RequestBudget(0, 0, 10)
    budget.take_steps(10, "records")
    with pytest.raises(TooManySteps, match="too many records"):
        budget.take_steps(1, "records")


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


def test_a_part_has_no_more_than_the_whole_nor_than_its_place_allows() -> None:
    part = unbounded().at_once()
    assert part == RequestBudget(AT_ONCE_STEPS // ELEMENT_STEPS, AT_ONCE_BYTES, AT_ONCE_STEPS, is_part=True)
    assert RequestBudget(1, 2, 3).at_once() == RequestBudget(1, 2, 3, is_part=True)
    on_loop = unbounded().on_loop()
    assert (on_loop.bytes, on_loop.steps) == (4 * AT_ONCE_BYTES, 4 * AT_ONCE_STEPS)
    assert on_loop.elements == UNLIMITED
    assert RequestBudget(1, 2, 3).on_loop() == RequestBudget(1, 2, 3, is_part=True)


def test_a_message_of_which_nothing_is_known_is_bounded_all_the_same() -> None:
    assert standalone().elements < UNLIMITED
    assert standalone().steps == MOST_STEPS
