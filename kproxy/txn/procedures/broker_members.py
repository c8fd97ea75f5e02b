"""Transactions of the broker's for members: begun before a member joins, and fenced once it has ended."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

from kproxy.codec.messages import ErrorCode
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.broker_member import BrokerMember
from kproxy.txn.procedures.broker_protocol import BrokerCoordinator, Protocol
from kproxy.txn.procedures.member_ids import MemberIds
from kproxy.txn.procedures.outside import OwnerTools, Pauses, SideBySide, Time
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view_values import BrokerTransaction

_REST_SECONDS: Final = 1.0


class BrokerMemberPorts(NamedTuple):
    """The brokers, as ``BrokerMembers`` asks them."""

    #: Requests to the coordinator of a transactional id of the broker's.
    requests: Callable[[str], BrokerCoordinator]
    #: The longest time that the coordinator of an id lets a transaction be open, in ms. TxnError.
    longest_ms: Callable[[str], Awaitable[int]]
    #: Pauses between attempts.
    pauses: Callable[[], Pauses]


def _explained(error: TxnError, slot: str, transactional_id: str) -> TxnError:
    """The error, and what to do where the broker's ACLs are the cause."""
    if error.error_code is not ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return error
    grant = "grant kproxy's principal Write and Describe on transactional ids that begin with kproxy-member-"
    instead = f"or let kproxy decide: transactions.home {transactional_id}=kproxy,*=auto"
    why = f"the brokers refuse {slot}: {grant}, {instead}"
    return TxnError(error.error_code, why)


class BrokerMembers:
    """Begins the transactions of the broker's that members write in."""

    def __init__(
        self,
        ports: BrokerMemberPorts,
        slots: MemberIds,
        patience_s: float,
        time: Time,
        side_by_side: SideBySide,
    ) -> None:
        """``slots``: names for their ids. ``patience_s``: how long a broker is asked for a transaction.

        ``side_by_side``: for ids that rest.
        """
        self._ports = ports
        self._slots = slots
        self._patience_s = patience_s
        self._time = time
        self._side_by_side = side_by_side

    async def make(
        self, transactional_id: str, name: str, producer: Producer, tools: OwnerTools, timeout_ms: int
    ) -> BrokerMember:
        """A member that has not joined. TxnError; INVALID_TRANSACTION_TIMEOUT if the broker ends it before that.

        An id is given up where its InitProducerId had no answer: that may still come, and would abort what a member has
        written since, also where its commit is decided.
        """
        until, backoff = self._time.now() + self._patience_s, self._ports.pauses()
        while True:
            slot = await self._slots.take()
            requests = self._ports.requests(slot)
            try:
                protocol, longest = await self._checked(requests, slot, timeout_ms)
            except BaseException:
                self._slots.give_back(slot)
                raise
            try:
                begun = await requests.init(longest, repeats=False)
            except TxnError as error:
                if error.error_code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                    self._slots.give_back(slot)
                    raise _explained(error, slot, transactional_id) from error
                if self._time.now() >= until:
                    raise
                await backoff.pause()
                continue
            self._slots.fenced(slot)
            transaction = BrokerTransaction(slot, begun, protocol.level, longest)
            return BrokerMember(transactional_id, name, producer, tools, transaction, requests, self._slots)

    async def _checked(self, requests: BrokerCoordinator, slot: str, timeout_ms: int) -> tuple[Protocol, int]:
        protocol = await requests.protocol()
        longest = await self._ports.longest_ms(slot)
        if timeout_ms > longest:
            why = f"{timeout_ms} ms is more than the brokers' transaction.max.timeout.ms, {longest} ms"
            raise TxnError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, why)
        return protocol, longest

    async def run(self) -> None:
        """Fences what may arrive late of members whose ids rest; for ever."""
        async with self._side_by_side.open() as start:
            while True:
                await self._slots.until_unfenced()
                await self._time.sleep(_REST_SECONDS)
                while (resting := self._slots.take_unfenced()) is not None:
                    start(partial(self._fence, *resting))

    async def _fence(self, slot: str, timeout_ms: int) -> None:
        """Has the broker raise the epoch of an id, which ends what a late request has opened.

        The id is given up unless the first request is answered: one that comes late would abort the next member.
        """
        requests, backoff, is_sure = self._ports.requests(slot), self._ports.pauses(), True
        async with self._side_by_side.place():
            while True:
                try:
                    await requests.init(timeout_ms, repeats=False)
                    break
                except TxnError as error:
                    is_sure = False
                    if error.error_code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                        break
                await backoff.pause()
        self._slots.fenced(slot)
        if is_sure:
            self._slots.give_back(slot)
