"""Coordinators of groups, and of the transactional ids under which kproxy writes their offsets."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import trio

from kproxy.codec.messages import ApiKey, Message
from kproxy.codec.version_choice import VersionRange
from kproxy.net.brokers.broker_client import M, as_it_is
from kproxy.net.brokers.coordinators import GROUP


class Asked(NamedTuple):
    """A request as it was sent, to whom, and when by trio's clock."""

    key: str
    key_type: int
    request: Any
    versions: VersionRange
    at: float


class FakeGroups:
    """Answers each request at once and without an error, unless a test says otherwise."""

    def __init__(self, *, has_transactions: bool = True) -> None:
        self.asked: list[Asked] = []
        #: The next responses to requests of a type, in their order; an error is raised.
        self.answers: dict[type[Message], list[Message | OSError]] = {}
        #: Answers wait for it.
        self.go = trio.Event()
        self.go.set()
        #: The version that requests have.
        self.version: int | None = None
        self._serves: Mapping[int, VersionRange] = {ApiKey.TXN_OFFSET_COMMIT: (0, 3)} if has_transactions else {}

    @property
    def coordinators(self) -> "FakeGroups":
        """What a cluster has."""
        return self

    def kinds(self) -> list[type[Message]]:
        """What was asked, in its order."""
        return [type(one.request) for one in self.asked]

    async def broker(self, _: str) -> tuple[None, Mapping[int, VersionRange]]:
        await trio.lowlevel.checkpoint()
        return None, self._serves

    async def ask(
        self,
        key: str,
        request: Message,
        answer: type[M],
        versions: VersionRange,
        *,
        key_type: int = GROUP,
        trim: Callable[[Any, int], None] = as_it_is,
    ) -> M:
        trim(request, versions[1] if self.version is None else self.version)
        self.asked.append(Asked(key, key_type, deepcopy(request), versions, trio.current_time()))
        await self.go.wait()
        prepared = self.answers.get(type(request))
        found = prepared.pop(0) if prepared else answer()
        if isinstance(found, OSError):
            raise found
        assert isinstance(found, answer)
        return found
