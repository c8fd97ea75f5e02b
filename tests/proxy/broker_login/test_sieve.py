"""Frames taken out of a stream, however it is cut."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.errors import RemoteProtocolError
from kproxy.proxy.broker_login.sieve import AnswerSieve

OWN = -5


def frame(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def sift_all(stream: bytes, cuts: list[int], wanted: int | None) -> tuple[bytes, list[bytes]]:
    """What is left for others, and the responses found."""
    sieve, kept, own = AnswerSieve(), b"", []
    bounds = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    for start, end in pairwise(bounds):
        data = memoryview(bytearray(sieve.held + stream[start:end]))
        sifted = sieve.sift(data, wanted)
        kept += bytes(data[: sifted.kept])
        if sifted.own is not None:
            own.append(sifted.own)
    return kept + sieve.held, own


bodies = st.lists(st.binary(max_size=40), max_size=6)
places = st.lists(st.integers(0, 400), max_size=12)


@given(bodies, st.binary(max_size=30), bodies, places)
def test_one_answer_is_taken_out_and_the_rest_stays(
    before: list[bytes], own: bytes, behind: list[bytes], cuts: list[int]
) -> None:
    others = [frame(number, body) for number, body in enumerate(before + behind)]
    stream = b"".join([*others[: len(before)], frame(OWN, own), *others[len(before) :]])
    assert sift_all(stream, cuts, OWN) == (b"".join(others), [frame(OWN, own)])


@given(bodies, places)
def test_with_none_wanted_all_stays(content: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frame(OWN, body) for body in content)
    assert sift_all(stream, cuts, None) == (stream, [])


@pytest.mark.parametrize(
    "head", [struct.pack(">ii", -1, 0), struct.pack(">ii", 3, 0), struct.pack(">ii", 1 << 20, OWN)]
)
def test_what_no_answer_begins_with(head: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        AnswerSieve().sift(memoryview(bytearray(head)), OWN)
