"""Requests of which a part is refused: the rest is sent, and the refusals are added to its response."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from kproxy.codec.messages import Message, response_class

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


def name_in(topic: Any) -> str | None:
    """The name of a topic in a message, whatever its field is called; None or empty: it has none."""
    name: str | None = getattr(topic, "name", None) or getattr(topic, "topic", None)
    return name or getattr(topic, "topic_name", None)


def split(
    items: Iterable[Any], error: Callable[[Any], int], row: Callable[[Any, int], object]
) -> tuple[list[Any], list[object]]:
    """The parts of a request that are allowed, and a ``row`` of the response for each other one, with its error."""
    kept, refused = [], []
    for item in items:
        code = error(item)
        if code:
            refused.append(row(item, code))
        else:
            kept.append(item)
    return kept, refused


class Parts:
    """A request of which each part is allowed or refused: what is refused is added to the response to the rest.

    ``parts``: the fields of the request that list them; ``results``: the field of the response with their results.
    """

    def __init__(
        self,
        error: Callable[[Any, Any], int],
        row: Callable[[Any, int], object],
        *,
        parts: Sequence[str] = ("topics",),
        results: str = "topics",
        amend: Callable[[Any], Amend] | None = None,
    ) -> None:
        """``error`` of a part, 0 if it is allowed, by what the caller decides by (``judge``).

        ``row`` is the part of the response that refuses it; ``amend`` changes the rest of the response.
        """
        self._error = error
        self._row = row
        self._parts = parts
        self._results = results
        self._amend = amend

    def __call__(self, judge: Any, request: Any, version: int) -> Screened:
        kept: dict[str, list[Any]] = {}
        refused: list[object] = []
        for name in self._parts:
            items = getattr(request, name)
            if items is None:
                continue
            kept[name], rows = split(items, lambda item: self._error(judge, item), self._row)
            refused += rows
        amend = None if self._amend is None else self._amend(judge)
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
    #: The topic's name (None: it has none), its partitions and their index, in the response.
    name: str | None = "name"
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
        if self.name is not None:
            setattr(answer, self.name, name_in(topic) or "")
        if hasattr(topic, "topic_id") and hasattr(answer, "topic_id"):
            answer.topic_id = topic.topic_id
        items = getattr(topic, self.asked)
        indexes = items if self.asked_index is None else [getattr(item, self.asked_index) for item in items]
        common = {**dict(self.fields), self.error: error}
        setattr(answer, self.rows, [self.row(**{self.index: index}, **common) for index in indexes])
        return answer
