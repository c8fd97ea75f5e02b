"""A client's questions to the coordinators of its transactional id and of a group, until there is a definite answer."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import trio

from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest
from kproxy.codec.messages import ErrorCode
from verification.simulation.transactions.calls import LOST, Address, Calls

GROUP: Final = 0
TRANSACTION: Final = 1
_FIND: Final = 3
#: The time for which a question is asked again (max.block.ms), in seconds.
_MAX_BLOCK: Final = 30.0
_BACKOFFS: Final = (0.02, 0.1, 0.3)
_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class Fatal(Exception):
    """The producer can only be closed."""


class Coordinators:
    """The coordinators of one process; each is found again when it gives no response, or says that it is another."""

    def __init__(self, calls: Calls, versions: Mapping[int, int], rng: Random, say: Callable[[str], None]) -> None:
        """``versions`` by API key; ``say`` notes what happens."""
        self._calls = calls
        self._versions = versions
        self._rng = rng
        self._say = say
        self._known: dict[tuple[int, str], Address] = {}

    async def ask(
        self,
        message: Any,
        key: str,
        *,
        key_type: int = TRANSACTION,
        lost: Callable[[], None] = lambda: None,
        again: Callable[[], None] = lambda: None,
    ) -> Any:
        """The response of a key's coordinator that is no invitation to ask again. ``Fatal`` if there is none.

        ``lost`` is called each time that a request had no response: it may still come to the coordinator. ``again`` is
        called before each further request.
        """
        deadline = trio.current_time() + _MAX_BLOCK
        while trio.current_time() < deadline:
            try:
                address = await self._find(key_type, key)
                answer = await self._calls.ask(address, message, self._versions[message.API_KEY])
            except LOST as error:
                self._say(f"has no answer to {type(message).__name__}: {error!r}")
                lost()
                self._known.pop((key_type, key), None)
            else:
                code = error_of(answer)
                if not ErrorCode(code).retriable and code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    return answer
                self._say(f"receives {ErrorCode(code).name} from the coordinator")
                if code in _MOVED:
                    self._known.pop((key_type, key), None)
            again()
            await trio.sleep(self._rng.choice(_BACKOFFS))
        raise Fatal("max.block.ms has passed")

    async def _find(self, key_type: int, key: str) -> Address:
        if (key_type, key) not in self._known:
            request = FindCoordinatorRequest(key=key, key_type=key_type)
            answer: Any = await self._calls.bootstrap(request, _FIND)
            if answer.error_code:
                raise OSError(f"no coordinator: {ErrorCode(answer.error_code).name}")
            self._known[key_type, key] = answer.host, answer.port
        return self._known[key_type, key]


def error_of(answer: Any) -> int:
    """The error of a coordinator's response; of one that has an error for each partition the first."""
    if (topics := getattr(answer, "results_by_topic_v3_and_below", None)) is not None:
        codes = [row.partition_error_code for topic in topics for row in topic.results_by_partition]
    elif hasattr(answer, "error_code"):
        codes = [answer.error_code]
    else:
        codes = [row.error_code for topic in answer.topics for row in topic.partitions]
    return next((int(code) for code in codes if code), 0)
