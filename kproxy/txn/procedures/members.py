"""The members that join at this instance, and the producer ids that they take turns with."""

from collections import deque
from collections.abc import Awaitable, Callable, Collection
from typing import Final, NamedTuple, Protocol

from kproxy.codec.messages import ErrorCode
from kproxy.txn.claims import NOBODY, fenced, next_client
from kproxy.txn.ids import LAST_EPOCH, TXN_BITS, Producer
from kproxy.txn.prepared_parts import named_parts
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.procedures.member import Member
from kproxy.txn.procedures.outside import OwnerTools
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView

#: Claims and decisions of others that may come between the look at the log and the member's record.
_MOST_TRIES: Final = 10
#: Producer ids that are kept for the next members, of all transactional ids.
_MOST_FREE: Final = 1_000


class Joining(NamedTuple):
    """The request to become a member."""

    transactional_id: str
    name: str
    #: None: the current owner of the id.
    owner: Producer | None
    #: As the client that takes the id where nobody has it.
    client_id: str
    #: By when it will be prepared; of the id, too, where nobody has it.
    timeout_ms: int
    #: Whether its data are to be in a transaction of the broker's where no rule says who decides the id.
    prefers_broker: bool = False


class MemberMaker(Protocol):
    """Makes members of some transactional ids: for brokers their data are plain, or of a transaction."""

    async def make(
        self, transactional_id: str, name: str, producer: Producer, tools: OwnerTools, timeout_ms: int
    ) -> Member:
        """A member that has not joined. TxnError."""
        ...


class MakersByRule:
    """The maker by the rule for the transactional id; without a rule by the member's wish.

    A member that wishes for the broker is plain where the brokers don't serve transactions.
    """

    def __init__(
        self,
        plain: MemberMaker,
        at_broker: MemberMaker,
        is_at_broker: Callable[[str], bool | None],
        brokers_serve: Callable[[], Awaitable[bool]],
    ) -> None:
        """``is_at_broker``: by a rule, None without one. ``brokers_serve``: whether brokers can keep members' data."""
        self._plain = plain
        self._at_broker = at_broker
        self._is_at_broker = is_at_broker
        self._brokers_serve = brokers_serve

    async def maker(self, wanted: Joining) -> MemberMaker:
        prefers_broker = wanted.prefers_broker
        return self._at_broker if await self.keeps_at_broker(wanted.transactional_id, prefers_broker) else self._plain

    async def keeps_at_broker(self, transactional_id: str, prefers_broker: bool) -> bool:
        """Whether the data of such a member are in a transaction of the broker's. TxnError."""
        by_rule = self._is_at_broker(transactional_id)
        return by_rule if by_rule is not None else prefers_broker and await self._brokers_serve()


class PlainMembers:
    """Makes members whose data the log alone keeps from readers."""

    async def make(
        self, transactional_id: str, name: str, producer: Producer, tools: OwnerTools, timeout_ms: int
    ) -> Member:
        return Member(transactional_id, name, producer, tools)


class Members:
    """Has members join, at most one under each producer id at a time.

    A record under an epoch fences the epochs below it, so each member that is open has a producer id to itself; the
    next one takes that with the next epoch.
    """

    def __init__(self, tools: OwnerTools, makers: MakersByRule) -> None:
        """Nobody has joined."""
        self._tools = tools
        self.makers = makers
        self._free: deque[tuple[str, Producer]] = deque(maxlen=_MOST_FREE)

    async def join(self, wanted: Joining) -> Member:
        """A member of the transaction that is open, or of the next one; the log shows it.

        TxnError: PRODUCER_FENCED if the owner that is named is not the client that has the id by now.
        """
        tries: list[Member] = []
        try:
            return await self._join(wanted, tries)
        except BaseException:
            for one in tries:
                one.close()
            raise

    async def _join(self, wanted: Joining, tries: list[Member]) -> Member:
        """``tries``: the try whose outcome is open; its record may be in the log by the time that this looks again."""
        keeper, own = ClaimKeeper(wanted.transactional_id, self._tools), set[Producer]()
        for _ in range(_MOST_TRIES):
            view = await keeper.read_to_end()
            if tries:
                if tries[0].has_joined(view):
                    return tries[0]
                self.leave(tries.pop())
            _refuse(view, wanted, own)
            main = view.next_epoch() if view is not None else None
            if view is None or main is None:
                await self._claim(keeper, view, wanted.client_id, wanted.timeout_ms)
                continue
            tries.append(await self._make(wanted))
            own.add(tries[0].producer)
            if await tries[0].join(view, main):
                return tries[0]
        raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, "others claim or decide the transactional id all the time")

    async def _make(self, wanted: Joining) -> Member:
        transactional_id = wanted.transactional_id
        maker = await self.makers.maker(wanted)
        producer = await self._producer(transactional_id)
        return await maker.make(transactional_id, wanted.name, producer, self._tools, wanted.timeout_ms)

    def leave(self, member: Member) -> None:
        """The member is prepared or given up; its producer id is for the next one."""
        member.close()
        following = Producer(member.producer.producer_id, member.producer.epoch + 1)
        if following.epoch <= LAST_EPOCH:
            self._free.append((member.transactional_id, following))

    async def _producer(self, transactional_id: str) -> Producer:
        for row in self._free:
            if row[0] == transactional_id:
                self._free.remove(row)
                return row[1]
        return Producer(await self._tools.new_producer_id() | TXN_BITS, 0)

    async def _claim(self, keeper: ClaimKeeper, view: IdView | None, client_id: str, timeout_ms: int) -> None:
        """Claims a block for the current owner of the id; a claim by another one serves as well."""
        client = NOBODY
        if view is None or view.claim is None:
            client = next_client(NOBODY, await self._tools.new_producer_id())
            keeper.client_id, keeper.timeout_ms = client_id, timeout_ms
        else:
            keeper.serve(view)
        await keeper.claim_once(view, client)


def _refuse(view: IdView | None, wanted: Joining, own: Collection[Producer]) -> None:
    """``own``: under which this member has tried to join; what comes late of that is no other member."""
    known = view.client if view is not None else NOBODY
    if wanted.owner not in (None, known):
        raise fenced(known)
    if view is not None and wanted.name in named_parts(view, own):
        why = f"there is a member {wanted.name} already: each takes a name of its own"
        raise TxnError(ErrorCode.INVALID_REQUEST, why)
