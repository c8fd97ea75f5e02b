"""Requests to the coordinator of a group or of a transactional id, wherever it is now."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import chain, repeat
from typing import Any, Final, Protocol

import trio

from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.version_choice import ANY, NoCommonVersion, VersionRange
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.broker_client import Caller, M, as_it_is
from kproxy.net.brokers.metadata import AnyBroker
from kproxy.proxy.routing import Address, Broker

GROUP: Final = 0
TRANSACTION: Final = 1
_FIND: Final[VersionRange] = (1, 3)
_MOST_REMEMBERED: Final = 10_000
#: Clients choose the names of groups, of up to 32,767 bytes: with this the coordinators take at most some MB.
_LONGEST_REMEMBERED: Final = 249
#: The coordinator has moved, or is starting: FindCoordinator is repeated, the first time at once.
_ELSEWHERE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
_ELSEWHERE_SECONDS: Final = (0.0, 0.2)
#: The coordinator is still busy with the transaction before. Markers take it 5 to 20 ms if all is well.
_BUSY: Final = ErrorCode.CONCURRENT_TRANSACTIONS
_BUSY_SECONDS: Final = (0.005, 0.005, 0.005, 0.005, 0.01, 0.02, 0.05)
#: It is asked at least so often, and for so long, unless the caller says how long.
_TRIES: Final = 10
_PATIENCE_SECONDS: Final = 1.8


class Brokers(AnyBroker, Protocol):
    """The brokers that are asked."""

    async def call(
        self,
        address: Address,
        request: Message,
        answer: type[M],
        versions: VersionRange,
        *,
        trim: Callable[[Any, int], None],
    ) -> M:
        """One broker's response. OSError, RemoteProtocolError."""

    async def versions(self, broker: Broker) -> Mapping[int, VersionRange]:
        """The versions that a broker serves. OSError, RemoteProtocolError."""

    def count_error(self, kind: str) -> None:
        """Counts a failure."""


class NoCoordinator(OSError):
    """Nobody coordinates the group or the transactional id now."""


class Coordinators:
    """A coordinator is remembered until it fails, or says that it is another one."""

    def __init__(self, brokers: Brokers) -> None:
        """Nothing is known yet."""
        self._brokers = brokers
        self._known: dict[tuple[int, str], Broker] = {}

    async def find(self, key: str, key_type: int = GROUP) -> Broker:
        """The coordinator of a group or a transactional id. NoCoordinator; OSError, RemoteProtocolError."""
        known = self._known.get((key_type, key))
        if known is not None:
            return known
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        response = await self._brokers.ask_any(request, FindCoordinatorResponse, _FIND)
        if response.error_code:
            raise NoCoordinator(f"{key} has no coordinator (error {response.error_code})")
        await self._brokers.learn([(response.node_id, Address(response.host, response.port))])
        found = self._brokers.map.brokers[response.node_id]
        if len(key) <= _LONGEST_REMEMBERED:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[key_type, key] = found
        return found

    def forget(self, key: str, key_type: int = GROUP) -> None:
        """Has the coordinator looked for again."""
        self._known.pop((key_type, key), None)

    async def broker(self, key: str, key_type: int = GROUP) -> tuple[Broker, Mapping[int, VersionRange]]:
        """The coordinator, and what it serves. OSError, RemoteProtocolError if it can't be asked."""
        try:
            found = await self.find(key, key_type)
            return found, await self._brokers.versions(found)
        except NoCoordinator:
            raise
        except (OSError, RemoteProtocolError):
            self._failed(key, key_type)
            raise

    async def ask(
        self,
        key: str,
        request: Message,
        answer: type[M],
        versions: VersionRange = ANY,
        *,
        key_type: int = GROUP,
        patience_s: float | None = None,
        trim: Callable[[Any, int], None] = as_it_is,
        connect: Callable[[Broker], Awaitable[Caller]] | None = None,
        repeats: bool = True,
        left_open: Callable[[], None] = lambda: None,
    ) -> M:
        """The coordinator's response, asked again while it moves, fails, or is busy with the transaction before.

        OSError if there is none after ``patience_s`` and some tries, NoCommonVersion. ``versions`` and ``trim`` as of
        ``Caller``. ``connect``: to it over a connection of the caller's own; None: a shared one. ``repeats``: False if
        a request without a response must not be sent again, OSError then. ``left_open`` is called each time that a
        request may have taken effect: it has no response, or its coordinator moved, maybe while it wrote.
        """
        busy, elsewhere = _pauses(_BUSY_SECONDS), _pauses(_ELSEWHERE_SECONDS)
        tries, until = 0, trio.current_time() + (_PATIENCE_SECONDS if patience_s is None else patience_s)
        while True:
            errors: list[int] = []
            try:
                broker = await self.find(key, key_type)
                if connect is None:
                    found = await self._brokers.call(broker.address, request, answer, versions, trim=trim)
                else:
                    found = await (await connect(broker)).call(request, answer, versions, trim=trim)
                errors = errors_in(found)
                if _BUSY not in errors and _ELSEWHERE.isdisjoint(errors):
                    return found
            except NoCommonVersion:
                raise
            except NoCoordinator:
                pass
            except (OSError, RemoteProtocolError) as error:
                self._failed(key, key_type)
                left_open()
                if not repeats:
                    raise OSError(f"the coordinator of {key} did not answer") from error
            if not _ELSEWHERE.isdisjoint(errors):
                self.forget(key, key_type)
                left_open()
            tries += 1
            if tries >= _TRIES and trio.current_time() >= until:
                raise OSError(f"no coordinator of {key} answers")
            await trio.sleep(next(busy if _BUSY in errors else elsewhere))

    def _failed(self, key: str, key_type: int) -> None:
        self._brokers.count_error("errand")
        self.forget(key, key_type)


def _pauses(seconds: tuple[float, ...]) -> Iterator[float]:
    """One after the other, and the last one from then on."""
    return chain(seconds, repeat(seconds[-1]))


def errors_in(answer: Any) -> list[int]:
    """The error codes of a response and of what it lists, in order; empty if all went well."""
    rows = [answer]
    for name in ("topics", "groups", "transaction_states", "results_by_topic_v3_and_below"):
        for row in getattr(answer, name, ()):
            rows += [row, *getattr(row, "partitions", ()), *getattr(row, "results_by_partition", ())]
    codes = (getattr(row, "error_code", 0) or getattr(row, "partition_error_code", 0) for row in rows)
    return [code for code in codes if code]
