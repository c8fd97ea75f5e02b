"""Decodes a client's frame, passes it to its guard, and encodes it again if the guard changed it.

All of this is in the client's version, before everything else that kproxy does to requests and after all that it does
to responses.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kproxy.budget import SCREENED_BYTE_STEPS, SCREENED_PARTITION_STEPS, RequestBudget, Share, Work, is_long
from kproxy.codec.header import decode_request_header, encode_request, encode_response, response_header_size
from kproxy.codec.messages import ApiKey, Message, decode_request, response_class
from kproxy.codec.primitives import Buffer
from kproxy.codec.produce_layout import walk_request
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.authorization.access import Access, Refusal
from kproxy.proxy.authorization.apis import GUARDS
from kproxy.proxy.versions import FREE

if TYPE_CHECKING:
    from kproxy.proxy.authorization.acl_rules import Subject

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
    #: Parts of the request that the response may refuse.
    parts: int = 0


def takes_long(frame: bytearray) -> bool:
    """Whether a request (prefix included) has to be screened beside the loop (``LongScreening``)."""
    if not is_long(len(frame) * SCREENED_BYTE_STEPS):
        return False
    header = decode_request_header(memoryview(frame)[_PREFIX:])
    if header.api_key != ApiKey.PRODUCE:
        return True
    layout = walk_request(frame, _PREFIX + header.size, header.api_version)
    return is_long(len(layout.partitions) * SCREENED_PARTITION_STEPS)


class LongScreening(Work[Screening]):
    """The screening of a long request: found in another thread, reported in the session's."""

    __slots__ = ("_access", "_apart", "_refused", "frame")

    def __init__(self, access: Access, frame: bytearray, share: Share) -> None:
        """As ``screen``."""
        self.frame = frame
        self._access = access
        self._refused: list[tuple[Subject, Refusal]] = []
        refused = self._refused  # not by way of this object: in a cycle, all would stay until a full collection
        self._apart = access.apart(lambda subject, refusal: refused.append((subject, refusal)))
        super().__init__(share.of_request(), partial(screen, self._apart, frame, share))

    def take(self) -> Screening:
        """Returns what was found, and reports the refusals."""
        self._access.makes_topics = self._apart.makes_topics
        for subject, refusal in self._refused:
            self._access.told(subject, refusal)
        return self.found


def screen(access: Access, frame: bytearray, share: Share, budget: RequestBudget) -> Screening:
    """What is forwarded of a request (prefix included), for which ``budget`` is; ``share`` has that of its response.

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
    partitions = 0
    if header.api_key == ApiKey.PRODUCE:  # they are counted before they are decoded
        partitions = len(walk_request(frame, _PREFIX + header.size, version).partitions)
    request: Any = decode_request(header.api_key, view[header.size :], version, budget)
    parts = budget.taken_elements or 2 * partitions
    screened = guard(access, request, version)
    if screened.answer is not None:
        waits = header.api_key != ApiKey.PRODUCE or request.acks != 0
        return Screening(None, screened.answer if waits else None, None, parts)
    if screened.request is not None:
        frame = bytearray(encode_request(screened.request, version, header.correlation_id, header.client_id))
    amend = screened.amend
    if amend is None:
        return Screening(frame)
    return Screening(
        frame, None, lambda answer: _amended(answer, header.api_key, version, amend, share.of_response()), parts
    )


def _amended(frame: Buffer, api_key: int, version: int, amend: Callable[[Any], None], budget: RequestBudget) -> bytes:
    view = memoryview(frame)[_PREFIX:]
    correlation_id = int.from_bytes(view[:4], "big", signed=True)
    answer = response_class(api_key).decode(view[response_header_size(api_key, version, view) :], version, budget)
    amend(answer)
    return encode_response(answer, version, correlation_id)
