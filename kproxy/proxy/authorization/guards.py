"""The building blocks of guards: requests refused as a whole or in part, with the errors that Kafka returns.

A guard takes the decoded request and returns what may be sent. What it refuses of a request is added to the response to
the rest; what a response holds beyond what its client may see is taken out of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from kproxy.codec.messages import Message, response_class
from kproxy.proxy.authorization.access import Access
from kproxy.proxy.authorization.acl_rules import CLUSTER_NAME, Operation, ResourceType
from kproxy.proxy.txn_errors import wire_error

#: Changes a response in place.
Amend: TypeAlias = Callable[[Any], None]


class Screened(NamedTuple):
    """What a guard decides; all None: the request is sent as it is."""

    #: The response, if nothing of the request is sent.
    answer: Message | None = None
    #: The request that is sent in its place.
    request: Message | None = None
    amend: Amend | None = None


PASSED = Screened()
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


class Parts:
    """A request of which each part is allowed or refused.

    ``parts``: the fields of the request that list them; ``results``: the field of the response with their results.
    """

    def __init__(
        self,
        error: Callable[[Access, Any], int],
        row: Callable[[Any, int], object],
        *,
        parts: Sequence[str] = ("topics",),
        results: str = "topics",
        amend: Callable[[Access], Amend] | None = None,
    ) -> None:
        """``error`` of a part; ``row`` is the part of the answer that refuses it; ``amend`` the rest of the answer."""
        self._error = error
        self._row = row
        self._parts = parts
        self._results = results
        self._amend = amend

    def __call__(self, access: Access, request: Any, version: int) -> Screened:
        kept: dict[str, list[Any]] = {}
        refused = []
        for name in self._parts:
            items = getattr(request, name)
            if items is None:
                continue
            errors = [self._error(access, item) for item in items]
            kept[name] = [item for item, error in zip(items, errors, strict=True) if not error]
            refused += [self._row(item, error) for item, error in zip(items, errors, strict=True) if error]
        amend = None if self._amend is None else self._amend(access)
        if not refused:
            return Screened(amend=amend)
        if not any(kept.values()):
            answer = response_class(request.API_KEY)()
            setattr(answer, self._results, refused)
            return Screened(answer=answer)
        return Screened(request=request.replaced(**kept), amend=_adds(self._results, refused, amend))


def _adds(name: str, refused: Sequence[object], amend: Amend | None) -> Amend:
    def change(answer: Any) -> None:
        if amend is not None:
            amend(answer)
        getattr(answer, name).extend(refused)

    return change


@dataclass(frozen=True, slots=True)
class Rows:
    """How the response refuses a topic of a request: a row for each of its partitions, as both sides name them."""

    topic: type[Any]
    row: type[Any]
    #: The topic's name, its partitions and their index, in the response.
    name: str = "name"
    rows: str = "partitions"
    index: str = "partition_index"
    #: The partitions of the request's topic and their index; None where these are plain numbers.
    asked: str = "partitions"
    asked_index: str | None = "partition_index"
    error: str = "error_code"
    #: The other fields of a row.
    fields: tuple[tuple[str, Any], ...] = ()

    def __call__(self, topic: Any, error: int) -> object:
        answer = self.topic()
        setattr(answer, self.name, getattr(topic, "topic", None) or getattr(topic, "name", ""))
        if hasattr(topic, "topic_id") and hasattr(answer, "topic_id"):
            answer.topic_id = topic.topic_id
        items = getattr(topic, self.asked)
        indexes = items if self.asked_index is None else [getattr(item, self.asked_index) for item in items]
        common = {**dict(self.fields), self.error: error}
        setattr(answer, self.rows, [self.row(**{self.index: index}, **common) for index in indexes])
        return answer


def on_topic(operation: Operation) -> Callable[[Access, Any], int]:
    """The error of a topic in a message."""
    return lambda access, topic: access.topic_error(operation, topic)


def on_name(operation: Operation, type_: ResourceType) -> Callable[[Access, Any], int]:
    """The error of a plain name."""
    return lambda access, name: access.error(operation, type_, name)
