"""Members of transactions by hand: they join, prepare and are aborted at the instance where their clients write."""

from typing import Final

from kproxy.codec.messages import ErrorCode
from kproxy.txn.described import Described
from kproxy.txn.procedures.log_control import LogControl, LogPorts
from kproxy.txn.procedures.log_owners import LogOwners
from kproxy.txn.procedures.managed_transactions import ManagedTransactions
from kproxy.txn.procedures.member_transaction import MemberTransaction
from kproxy.txn.procedures.members import Joining, Members
from kproxy.txn.txn_error import TxnError

#: Of a member of an id that has no owner yet, ms.
DEFAULT_TIMEOUT_MS: Final = 60_000


class MemberControl:
    """Has clients write as members, of ids that anybody decides: the log has the members of all. TxnError."""

    def __init__(
        self, ports: LogPorts, log: LogControl, owners: LogOwners, begun: ManagedTransactions, members: Members
    ) -> None:
        """``log`` describes what has become of an id. ``begun``: where clients' requests go."""
        self._ports = ports
        self._log = log
        self._owners = owners
        self._begun = begun
        self._members = members

    async def keeper(self, transactional_id: str) -> str:
        """``broker`` or ``kproxy``: who keeps the data of members that prefer the broker from readers. TxnError."""
        return (
            "broker" if await self._members.makers.keeps_at_broker(transactional_id, prefers_broker=True) else "kproxy"
        )

    async def begin(self, wanted: Joining) -> Described:
        """Joins; a repeated request finds the member that it has begun, as long as nothing was written."""
        name = wanted.transactional_id
        known = self._begun.named(name, wanted.name)
        if isinstance(known, MemberTransaction) and known.is_new(wanted, await self._ports.read(name)):
            return self._log.described(name)
        await self._begun.begin_member(self._members, wanted)
        return self._log.described(name)

    async def timeout_ms(self, transactional_id: str, wanted: int | None) -> int:
        """The time by which a member will be prepared, in ms: by default the id's. INVALID_TRANSACTION_TIMEOUT."""
        if wanted is None:
            view = await self._ports.read(transactional_id)
            wanted = view.claim.timeout_ms if view is not None and view.claim is not None else DEFAULT_TIMEOUT_MS
        self._owners.check_timeout(wanted)
        return wanted

    async def prepare(self, transactional_id: str, member: str, records: int | None) -> Described:
        """Prepares what was written; what is prepared already is a success."""
        view = await self._ports.found(transactional_id)
        capture = self._begun.named(transactional_id, member)
        if capture is not None:
            with self._begun.ending(capture):
                await capture.prepare(records)
        elif all(part.name != member for part in view.prepared.values()):  # else it is asked again
            raise _none_here(transactional_id, member)
        return self._log.described(transactional_id)

    async def abort(self, transactional_id: str, member: str) -> Described:
        """Gives up what was written."""
        await self._ports.found(transactional_id)
        capture = self._begun.named(transactional_id, member)
        if capture is None:
            raise _none_here(transactional_id, member)
        with self._begun.ending(capture):
            await capture.abort()
        return self._log.described(transactional_id)


def _none_here(transactional_id: str, member: str) -> TxnError:
    return TxnError(ErrorCode.INVALID_TXN_STATE, f"no member {member} of {transactional_id} is open here")
