"""The building blocks of guards: requests refused as a whole, with the errors that Kafka returns; and rights on parts.

A guard takes the decoded request and returns what may be sent (``kproxy.proxy.screening``). What a response holds
beyond what its client may see is taken out of it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from kproxy.codec.messages import Message, response_class
from kproxy.proxy.authorization.access import Access
from kproxy.proxy.authorization.acl_rules import CLUSTER_NAME, Operation, ResourceType
from kproxy.proxy.screening import PASSED, Screened
from kproxy.proxy.txn_errors import wire_error

Guard: TypeAlias = Callable[[Access, Any, int], Screened]
#: A response that refuses all of a request: request, version, error code.
Refusal: TypeAlias = Callable[[Any, int, int], Message]


class Asked(NamedTuple):
    """One thing that a request as a whole needs; ``attribute`` names the resource, None for the cluster."""

    operation: Operation
    type: ResourceType
    attribute: str | None = None

    def error(self, access: Access, request: Any) -> int:
        """0 if it is allowed."""
        name = CLUSTER_NAME if self.attribute is None else getattr(request, self.attribute) or ""
        return access.error(self.operation, self.type, name)


def with_error(request: Any, version: int, error: int) -> Message:
    """The refusal of APIs whose responses have one error for all."""
    answer: Any = response_class(request.API_KEY)()
    answer.error_code = wire_error(request.API_KEY, version, error)
    message: Message = answer
    return message


class Whole:
    """A request that is allowed or refused as a whole; then ``rest`` checks its parts."""

    def __init__(self, *asked: Asked, refusal: Refusal = with_error, rest: Guard | None = None) -> None:
        """All of ``asked`` is needed; the first that is not allowed is the error."""
        self._asked = asked
        self._refusal = refusal
        self._rest = rest

    def __call__(self, access: Access, request: Any, version: int) -> Screened:
        for asked in self._asked:
            error = asked.error(access, request)
            if error:
                return Screened(answer=self._refusal(request, version, error))
        return PASSED if self._rest is None else self._rest(access, request, version)


def on_topic(operation: Operation) -> Callable[[Access, Any], int]:
    """The error of a topic in a message."""
    return lambda access, topic: access.topic_error(operation, topic)


def on_name(operation: Operation, type_: ResourceType) -> Callable[[Access, Any], int]:
    """The error of a plain name."""
    return lambda access, name: access.error(operation, type_, name)
