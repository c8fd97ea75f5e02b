"""Screens for tests: rules in few words, frames in and out."""

from collections.abc import Iterable
from typing import Any

from kproxy.budget import Share, unbounded
from kproxy.codec.header import decode_request_header, encode_request, encode_response, response_header_size
from kproxy.codec.messages import Message, request_class, response_class
from kproxy.proxy.authorization.access import Access, Policy, Refusal
from kproxy.proxy.authorization.acl_rules import (
    HostPattern,
    Operation,
    PatternType,
    Resource,
    ResourceType,
    Rule,
    Rules,
    Subject,
)
from kproxy.proxy.authorization.screen import Screening, screen
from kproxy.proxy.context import Policy as Limits

_TYPES = {
    "t": ResourceType.TOPIC,
    "g": ResourceType.GROUP,
    "x": ResourceType.TRANSACTIONAL_ID,
    "c": ResourceType.CLUSTER,
}


def allow(*grants: str, allows: bool = True) -> list[Rule]:
    """Rules for all, as ``Write t:orders``: an operation, the first letter of a type (x: ids), and a prefix."""
    rules = []
    for grant in grants:
        operation, _, what = grant.partition(" ")
        kind, _, name = what.partition(":")
        resource = Resource(_TYPES[kind], name, PatternType.PREFIXED)
        rules.append(Rule(allows, ("*",), (HostPattern("*"),), ("*",), frozenset({Operation(operation)}), (resource,)))
    return rules


class Screened:
    """An access under test, and what it told."""

    def __init__(self, *grants: str, names: dict[bytes, str] | None = None, super_user: bool = False) -> None:
        self.told: list[tuple[Subject, Refusal]] = []
        self.policy = Policy(Rules(allow(*grants), ["User:a"] if super_user else []))
        self.access = Access(self.policy, "::ffff:10.0.0.1", names or {}, lambda *each: self.told.append(each))
        self.access.renew("User:a", "client")

    def screen(self, request: Message, version: int) -> tuple[Screening, bytearray]:
        """What becomes of a request, and its frame."""
        frame = bytearray(encode_request(request, version, 7, "client"))
        share = Share(Limits())
        return screen(self.access, frame, share, share.of_request()), frame

    def refused(self, request: Message, version: int) -> Any:
        """The response to a request that is not forwarded at all, as its client decodes it."""
        screening, _ = self.screen(request, version)
        assert screening.frame is None
        assert screening.answer is not None
        return decoded(encode_response(screening.answer, version, 7), request.API_KEY, version)

    def passed(self, request: Message, version: int, answer: Message | None = None) -> tuple[Any, Any]:
        """What is forwarded of a request, and how the response to that is changed."""
        screening, _ = self.screen(request, version)
        assert screening.frame is not None
        view = memoryview(screening.frame)[4:]
        header = decode_request_header(view)
        asked = request_class(header.api_key).decode(view[header.size :], header.api_version, unbounded())
        if answer is None:
            return asked, None
        frame = encode_response(answer, version, 7)
        if screening.finish is not None:
            frame = screening.finish(frame)
        return asked, decoded(frame, request.API_KEY, version)

    def names(self) -> Iterable[tuple[str, str]]:
        """The operation and the name of each question."""
        return [(refusal.operation.value, refusal.name) for _, refusal in self.told]


def decoded(frame: bytes, api_key: int, version: int) -> Any:
    """The response in a frame."""
    view = memoryview(frame)[4:]
    return response_class(api_key).decode(view[response_header_size(api_key, version, view) :], version, unbounded())
