"""Applications that make one output of each input: EOS breaks."""

import pytest

from verification.history import AnomalyKind, Commit, Kind, Operation, Outcome, Poll, Send, Source, check

IN, OUT = "in", "out"
INPUTS = Operation("w", Kind.SEND, Outcome.OK, 0, 1, sends=tuple(Send(IN, 0, at, f"i{at}") for at in range(6)))


def copy(first: int, last: int, outcome: Outcome = Outcome.OK, attempt: str = "") -> Operation:
    """Copies the inputs from ``first`` to ``last`` and moves the group after them."""
    offsets = range(first, last + 1)
    return Operation(
        "copier",
        Kind.TXN,
        outcome,
        10 * first + 10,
        10 * first + 15,
        sends=tuple(Send(OUT, 0, None, f"o{at}{attempt}") for at in offsets),
        commits=(Commit(IN, 0, last + 1),),
        group="g",
        sources=tuple(Source(IN, 0, at) for at in offsets),
    )


def end(*outputs: str, group: int | None = None) -> list[Operation]:
    polls = (Poll(IN, 0, tuple((at, f"i{at}") for at in range(6))), Poll(OUT, 0, tuple(enumerate(outputs))))
    read = [Operation("end", Kind.POLL, Outcome.OK, 9_000, 9_001, polls=polls, final=True)]
    if group is not None:
        commits = (Commit(IN, 0, group),)
        read.append(Operation("end", Kind.GROUP, Outcome.OK, 9_000, 9_001, commits=commits, group="g", final=True))
    return read


def breaks(*history: Operation) -> list[tuple[int, ...]]:
    return [found.offsets for found in check([INPUTS, *history]) if found.kind is AnomalyKind.EOS_BREAK]


def test_each_input_below_the_groups_offset_has_one_output() -> None:
    assert breaks(copy(0, 2), copy(3, 4), *end("o0", "o1", "o2", "o3", "o4", group=5)) == []
    assert breaks(copy(0, 2), copy(3, 4), *end("o0", "o2", "o3", "o4", group=5)) == [(1,)]
    assert breaks(copy(0, 2), *end("o0", "o1", "o2", group=5)) == [(3,), (4,)]


def test_an_input_that_is_copied_again_after_an_abort_has_one_output() -> None:
    again = [copy(0, 2, Outcome.FAIL), copy(0, 2, attempt=" again")]
    assert breaks(*again, *end("o0 again", "o1 again", "o2 again", group=3)) == []
    assert breaks(*again, *end("o0 again", "o1 again", "o2 again", "o1", group=3)) == [(1,)]
    assert breaks(copy(0, 2, Outcome.FAIL), copy(0, 2), *end("o0", "o1", "o2", group=3)) == []


def test_no_output_shows_without_the_groups_offset() -> None:
    assert breaks(copy(0, 2), copy(3, 4, Outcome.INFO), *end("o0", "o1", "o2", group=3)) == []
    assert breaks(copy(0, 2), copy(3, 4, Outcome.INFO), *end("o0", "o1", "o2", "o3", "o4", group=3)) == [(3,), (4,)]


@pytest.mark.parametrize("outputs", [["o0", "o1", "o2"], ["o0", "o1", "o2", "o3", "o4"]])
def test_where_the_groups_offset_was_not_read_both_outcomes_of_an_open_transaction_are_clean(
    outputs: list[str],
) -> None:
    assert breaks(copy(0, 2), copy(3, 4, Outcome.INFO), *end(*outputs)) == []
    assert breaks(copy(0, 2), copy(3, 4, Outcome.INFO), *end(*outputs, "o3", "o3")) == [(3,)]
    assert breaks(copy(0, 2), copy(3, 4, Outcome.INFO), *end(*outputs[1:])) == [(0,)]


def test_a_group_without_sources_is_not_judged() -> None:
    moved = Operation("c", Kind.COMMIT, Outcome.OK, 0, 1, commits=(Commit(IN, 0, 5),), group="g")
    assert breaks(moved, *end(group=5)) == []
