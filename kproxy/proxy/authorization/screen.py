"""Decodes a client's frame, passes it to its guard, and encodes it again if the guard changed it.

All of this is in the client's version, before everything else that kproxy does to requests and after all that it does
to responses.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from kproxy.codec.header import decode_request_header, encode_request, encode_response, response_header_size
from kproxy.codec.messages import ApiKey, Message, decode_request, response_class
from kproxy.codec.primitives import Buffer
from kproxy.codec.produce_layout import walk_request
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.authorization.access import Access
from kproxy.proxy.authorization.apis import GUARDS
from kproxy.proxy.versions import FREE

_PREFIX = 4

#: Changes whole response frames, as a ``Slot`` holds them.
Finish: TypeAlias = Callable[[bytes], bytes]


class Screening(NamedTuple):
    """What is done with a frame."""

    #: What is forwarded; None if nothing is.
    frame: bytearray | None
    #: The response, where nothing is forwarded; None if the client waits for none.
    answer: Message | None = None
    #: What has to be done to the response.
    finish: Finish | None = None


def screen(access: Access, frame: bytearray, most_elements: int) -> Screening:
    """What is forwarded of a request (prefix included), which may have so many array elements unless it is Produce.

    RemoteProtocolError if it is malformed, or of no known API.
    """
    view = memoryview(frame)[_PREFIX:]
    header = decode_request_header(view)
    if header.api_key in FREE:
        return Screening(frame)
    guard = GUARDS.get(header.api_key)
    if guard is None:
        raise RemoteProtocolError(f"API key {header.api_key} is not served")
    version = header.api_version
    access.api_key = header.api_key
    if header.api_key == ApiKey.PRODUCE:
        walk_request(frame, _PREFIX + header.size, version)  # counts the partitions before they are decoded
    request: Any
    request, _ = decode_request(header.api_key, view[header.size :], version, most_elements)
    screened = guard(access, request, version)
    if screened.answer is not None:
        waits = header.api_key != ApiKey.PRODUCE or request.acks != 0
        return Screening(None, screened.answer if waits else None)
    if screened.request is not None:
        frame = bytearray(encode_request(screened.request, version, header.correlation_id, header.client_id))
    amend = screened.amend
    if amend is None:
        return Screening(frame)
    return Screening(frame, None, lambda answer: _amended(answer, header.api_key, version, amend))


def _amended(frame: Buffer, api_key: int, version: int, amend: Callable[[Any], None]) -> bytes:
    view = memoryview(frame)[_PREFIX:]
    correlation_id = int.from_bytes(view[:4], "big", signed=True)
    answer = response_class(api_key).decode(view[response_header_size(api_key, version, view) :], version)
    amend(answer)
    return encode_response(answer, version, correlation_id)
