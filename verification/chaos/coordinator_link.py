"""Requests to the coordinator of a transactional id or a group, wherever it is now."""

from typing import Final, TypeVar

from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproxy.codec.messages import ErrorCode, Message
from verification.chaos.link import Address, Link, LinkLost

GROUP: Final = 0
TRANSACTION: Final = 1
_FIND_VERSION: Final = 2
_PATIENCE_S: Final = 8.0
_MessageT = TypeVar("_MessageT", bound=Message)


class CoordinatorLink:
    """One connection to the coordinator of ``key`` (of type GROUP or TRANSACTION), made when it is first needed."""

    def __init__(self, bootstrap: Address, client_id: str, key: str, key_type: int) -> None:
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._key, self._key_type = key, key_type
        self._link: Link | None = None

    async def call(self, request: Message, version: int, answer: type[_MessageT]) -> _MessageT:
        """Send a request and return its response.

        :raises LinkLost: no coordinator, or no response within 8 s; the next call finds the coordinator again.
        """
        try:
            if self._link is None:
                self._link = await Link.open(await self._find(), self._client_id)
            return await self._link.call(request, version, answer, _PATIENCE_S)
        except LinkLost:
            self.close()
            raise

    async def _find(self) -> Address:
        request = FindCoordinatorRequest(key=self._key, key_type=self._key_type)
        async with await Link.open(self._bootstrap, self._client_id) as link:
            found = await link.call(request, _FIND_VERSION, FindCoordinatorResponse, _PATIENCE_S)
        if found.error_code:
            raise LinkLost(f"no coordinator: {ErrorCode(found.error_code).name}")
        return found.host, found.port

    def close(self) -> None:
        """Close the connection; the next call opens another one."""
        if self._link is not None:
            self._link.close()
            self._link = None
