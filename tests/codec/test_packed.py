"""State at rest: what was packed comes back equal, and named tuples become plain ones, however deep they lie."""

from typing import NamedTuple

from kproxy.codec.packed import pack, plain, unpack


class Named(NamedTuple):
    number: int
    text: str


def test_what_was_packed_comes_back() -> None:
    state = (1, None, "\udc80", b"\0", {("t", 0): [(1, 2)]}, True)
    assert unpack(pack(state)) == state


def test_named_tuples_become_plain_ones() -> None:
    made = plain([Named(1, "a"), (Named(2, "b"), 3), None])
    assert made == ((1, "a"), ((2, "b"), 3), None)
    assert {type(made), type(made[0]), type(made[1]), type(made[1][0])} == {tuple}
