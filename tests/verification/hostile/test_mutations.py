from collections import Counter

import pytest

from kproxy.budget import unbounded
from kproxy.codec.messages import APIS, request_class
from verification.hostile.mutations import Kind, frames, requests


def test_every_request_in_every_version_is_sent() -> None:
    expected = {(key, version) for key, (_, low, high, _) in APIS.items() for version in range(low, high + 1)}
    assert {(key, version) for _, key, version in requests()} == expected
    assert {(frame.api_key, frame.version) for frame in frames(1, len(expected))} == expected


def test_the_same_seed_gives_the_same_frames() -> None:
    assert list(frames(1, 400)) == list(frames(1, 400))
    assert list(frames(1, 400)) != list(frames(2, 400))


def test_at_least_half_of_the_frames_are_well_formed_but_for_one_field() -> None:
    sent = list(frames(3, 2000))
    assert Counter(frame.kind for frame in sent)[Kind.ONE_FIELD] >= 1000
    for frame in sent:
        if frame.kind is Kind.ONE_FIELD:
            body = _body(frame.data, flexible=frame.version >= APIS[frame.api_key][3])
            request_class(frame.api_key).decode(
                body, frame.version, unbounded()
            )  # RemoteProtocolError if it can't be read


def test_every_frame_is_as_long_as_it_says() -> None:
    for frame in frames(4, 1000):
        assert int.from_bytes(frame.data[:4], "big") == len(frame.data) - 4


def _body(data: bytes, *, flexible: bool) -> bytes:
    client_id = int.from_bytes(data[12:14], "big", signed=True)
    return data[14 + max(client_id, 0) + flexible :]


@pytest.mark.parametrize("kind", Kind)
def test_each_kind_occurs(kind: Kind) -> None:
    assert any(frame.kind is kind for frame in frames(5, 200))
