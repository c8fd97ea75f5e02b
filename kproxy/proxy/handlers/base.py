"""What a handler of one API key is: two pure functions, one towards the broker and one towards the client."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypeAlias

from kproxy.budget import RequestBudget
from kproxy.codec.messages import Message, response_class
from kproxy.codec.topic_partition import TopicPartition
from kproxy.proxy.context import Context
from kproxy.proxy.coordinator_requests import CoordinatorRequest, GroupRequest
from kproxy.txn.last_stable import Question


@dataclass(slots=True)
class Exchange:
    """One request in flight: as the client sent it, the versions on both sides, and the handler's notes."""

    request: Any
    client_version: int
    upstream_version: int
    notes: dict[str, Any] = field(default_factory=dict)
    #: The API key of the question that is asked of the broker, where that is not the client's.
    asked: int | None = None


@dataclass(slots=True)
class Again:
    """The response is not enough yet: ask the broker this, too, at ``version`` (None: as before)."""

    request: Message
    version: int | None = None


@dataclass(slots=True)
class Local:
    """Nothing to ask: this is the response."""

    answer: Message


@dataclass(slots=True)
class Park:
    """Not to be answered yet: resumed when the transaction log says more, or at ``until`` (seconds since the epoch)."""

    until: float


@dataclass(slots=True)
class Stable:
    """The response has to wait: resume it when it is known how far all is decided.

    ``resume`` then receives, for each partition, the result of ``LastStable.found``; None where nothing is known.
    """

    question: Question
    #: So long is waited at most (seconds since the epoch).
    until: float = inf


@dataclass(slots=True)
class Restated:
    """The response of the broker is the client's but for the last stable offsets: those of all rows, in their order."""

    stable: Sequence[int]


class AsItIs:
    """The response of the broker is the client's, to the byte."""


#: What becomes of a broker's response.
Lowered: TypeAlias = Message | Again | AsItIs | Restated | Park | Stable | GroupRequest


class Handler:
    """Lift and lower by the codec alone: right for each API whose fields only grew."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Whether answers (or requests) must be decoded though both sides speak the same version."""
        return upstream != version

    def rewrites_this(self, ctx: Context, version: int, request: memoryview) -> bool:
        """Whether this request, header included, must be decoded though ``rewrites`` says no: its content tells."""
        return False

    def ask_version(self, ctx: Context, version: int, upstream: int) -> int:
        """The version for the broker, given the one that ``upstream_version`` chose."""
        return upstream

    def lift(self, ctx: Context, exchange: Exchange, budget: RequestBudget) -> Message | Local | CoordinatorRequest:
        """What to ask the broker, or whom else."""
        request: Message = exchange.request
        return request

    def brokers_in(self, response: Any) -> Iterable[tuple[int, str, int]]:
        """The brokers (node id, host, port) that a response names: each needs an address of kproxy's first."""
        return ()

    def long_work(
        self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget
    ) -> Callable[[], None] | None:
        """What takes long of ``lower``: to be called before it, by any thread; None if nothing does."""
        return None

    def read_as(self, api_key: int, exchange: Exchange) -> type[Message]:
        """The class of the response to the question of the exchange, which was asked by ``api_key``."""
        return response_class(api_key)

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Lowered:
        """What to answer the client, or what else to ask or wait for."""
        answer: Message = response
        return answer

    def resume(
        self, ctx: Context, exchange: Exchange, told: Mapping[TopicPartition, int | None], budget: RequestBudget
    ) -> Lowered:
        """As ``lower``, after a ``Park`` or ``Stable``; ``told`` is what the latter asked for.

        May be called early. Only for handlers that return these.
        """
        raise NotImplementedError
