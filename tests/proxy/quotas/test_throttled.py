"""Every response in every version can be told with a wait in it, and says nothing else than before."""

from typing import Any

import pytest

from kproxy.budget import unbounded
from kproxy.codec.header import encode_response, response_header_size
from kproxy.codec.messages import APIS, response_class
from kproxy.proxy.quotas.throttled import throttled
from tests.support.samples import Sampler


def decoded(frame: bytes, api_key: int, version: int) -> Any:
    view = memoryview(frame)[4:]
    return response_class(api_key).decode(view[response_header_size(api_key, version, view) :], version, unbounded())


@pytest.mark.parametrize("api_key", APIS)
def test_the_wait_is_in_the_answer_if_its_version_can_say_so(api_key: int) -> None:
    name, first, last, _ = APIS[api_key]
    for version in range(first, last + 1):
        message, _ = Sampler(f"{name}Response", version, 1).message()
        before = encode_response(message, version, 7)
        answer = decoded(throttled(before, api_key, version, 1 << 30, unbounded()), api_key, version)
        expected = decoded(before, api_key, version)
        if hasattr(answer, "throttle_time_ms") and answer.throttle_time_ms:
            expected.throttle_time_ms = max(expected.throttle_time_ms, 1 << 30)
        assert answer == expected


def test_a_longer_wait_that_the_broker_asks_for_stays() -> None:
    for api_key, version in ((0, 8), (1, 4), (12, 1)):
        message: Any = response_class(api_key)(throttle_time_ms=500)
        frame = encode_response(message, version, 7)
        assert decoded(throttled(frame, api_key, version, 100, unbounded()), api_key, version).throttle_time_ms == 500
        assert decoded(throttled(frame, api_key, version, 900, unbounded()), api_key, version).throttle_time_ms == 900


def test_the_versions_that_can_say_it_do() -> None:
    said = {
        (api_key, version)
        for api_key, version in ((0, 0), (0, 1), (0, 9), (0, 13), (1, 0), (1, 1), (1, 12), (12, 0), (12, 1), (12, 4))
        if decoded(
            throttled(encode_response(response_class(api_key)(), version, 7), api_key, version, 9, unbounded()),
            api_key,
            version,
        ).throttle_time_ms
    }
    assert said == {(0, 1), (0, 9), (0, 13), (1, 1), (1, 12), (12, 1), (12, 4)}
