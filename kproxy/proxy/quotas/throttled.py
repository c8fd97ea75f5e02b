"""Responses that tell their clients for how long they are muted."""

from struct import Struct
from typing import Any

from kproxy.budget import RequestBudget
from kproxy.codec.header import encode_response, response_header_size
from kproxy.codec.messages import response_class
from kproxy.proxy.versions import READS

_PREFIX = 4
_MS = Struct(">i")
#: The first version of ``READS`` that can say it, at the beginning of its body.
_FIRST_FETCH = 1


def throttled(frame: bytes, api_key: int, version: int, ms: int, budget: RequestBudget) -> bytes:
    """A response (prefix included) with ``throttle_time_ms``, if its version can say so; never less than before."""
    view = memoryview(frame)[_PREFIX:]
    body = response_header_size(api_key, version, view)
    if api_key in READS:  # records need not be read for it
        return _fetched(frame, _PREFIX + body, ms) if version >= _FIRST_FETCH else frame
    kind = response_class(api_key)
    if not hasattr(kind(), "throttle_time_ms"):
        return frame
    answer: Any = kind.decode(view[body:], version, budget)
    answer.throttle_time_ms = max(answer.throttle_time_ms, ms)
    return encode_response(answer, version, _MS.unpack_from(view)[0])


def _fetched(frame: bytes, at: int, ms: int) -> bytes:
    if _MS.unpack_from(frame, at)[0] >= ms:
        return frame
    return b"".join((memoryview(frame)[:at], _MS.pack(ms), memoryview(frame)[at + _MS.size :]))
