"""Transactions by hand, for the control API (``kproxy.control.transaction_control.TransactionControl``)."""

from collections.abc import Callable, Sequence
from typing import Final

from kproxy.txn.described import Described, Listing, OwnerId, Stale
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.batch_decisions import BatchDecision
from kproxy.txn.procedures.hand_control import HandControl
from kproxy.txn.procedures.member_control import MemberControl
from kproxy.txn.procedures.members import Joining
from kproxy.txn.procedures.rejects import Rejects
from kproxy.txn.txn_error import TxnError

_DEFAULT_PREFIX: Final = "kproxy-"


class ControlService:
    """Has each request done where the transactions of its id are decided."""

    def __init__(
        self,
        of: Callable[[str], HandControl],
        every: Sequence[HandControl],
        members: MemberControl,
        rejects: Rejects,
    ) -> None:
        """``of``: by transactional id, one of ``every``."""
        self._of = of
        self._every = every
        self._members = members
        self._rejects = rejects

    async def begin(self, *, client_id: str | None, transactional_id: str | None, timeout_ms: int) -> Described:
        name = transactional_id or f"{_DEFAULT_PREFIX}{client_id}"
        return await self._of(name).begin(name, client_id, timeout_ms)

    async def initialize(self, transactional_id: str, *, client_id: str, timeout_ms: int) -> Described:
        keeper = await self._members.keeper(transactional_id)
        found = await self._of(transactional_id).initialize(transactional_id, client_id, timeout_ms)
        return found._replace(member_home=keeper)

    async def commit(
        self,
        transactional_id: str,
        *,
        batch_id: str | None = None,
        members: Sequence[str] = (),
        owner: OwnerId | None = None,
        abort_others: bool = False,
    ) -> Described:
        asked = BatchDecision(transactional_id, _producer(owner), batch_id, members, abort_others)
        return await self._of(transactional_id).commit(asked)

    async def abort(
        self, transactional_id: str, *, owner: OwnerId, members: Sequence[str] = (), abort_others: bool = False
    ) -> Described:
        asked = BatchDecision(transactional_id, _producer(owner), None, members, abort_others)
        return await self._of(transactional_id).abort(asked)

    async def prepare(self, transactional_id: str, *, owner: OwnerId, batch_id: str | None = None) -> Described:
        return await self._of(transactional_id).prepare(transactional_id, Producer(*owner), batch_id)

    # -- members

    async def begin_member(
        self,
        transactional_id: str,
        member: str,
        *,
        client_id: str,
        owner: OwnerId | None = None,
        timeout_ms: int | None = None,
        prefer_broker: bool = False,
    ) -> Described:
        longest = await self._members.timeout_ms(transactional_id, timeout_ms)
        return await self._members.begin(
            Joining(transactional_id, member, _producer(owner), client_id, longest, prefer_broker)
        )

    async def prepare_member(self, transactional_id: str, member: str, *, records: int | None = None) -> Described:
        return await self._members.prepare(transactional_id, member, records)

    async def abort_member(self, transactional_id: str, member: str) -> Described:
        return await self._members.abort(transactional_id, member)

    async def reject(self, producer_id: int) -> None:
        await self._rejects.reject(producer_id)

    # -- descriptions

    async def list(self) -> Listing:
        found = Listing()
        for control in self._every:
            try:
                part = await control.list()
            except TxnError as error:
                if not found:
                    raise
                found.stale = Stale(None, error.message)
            else:
                found += part
                found.stale = found.stale or part.stale
        return found

    async def describe(self, transactional_id: str) -> Described:
        return await self._of(transactional_id).describe(transactional_id)


def _producer(owner: OwnerId | None) -> Producer | None:
    return Producer(*owner) if owner is not None else None
