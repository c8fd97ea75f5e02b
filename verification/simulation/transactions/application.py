"""An application that knows nothing of transactions, modelled: it reads, writes, and commits offsets.

Its input is a count: the next one follows the position of its group. So two outputs of one input are found.
"""

from collections.abc import Sequence
from typing import Any, Final

import trio

from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest
from kproxy.codec._generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproxy.codec._generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kproxy.codec._generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kproxy.codec.messages import ErrorCode, Message
from verification.simulation.plan import TOPIC
from verification.simulation.transactions.calls import LOST
from verification.simulation.transactions.coordinators import Fatal
from verification.simulation.transactions.history import Claimed, Input
from verification.simulation.transactions.legacy import Legacy, LegacyTools
from verification.simulation.transactions.member_writer import MemberWriter, WriteFailed
from verification.simulation.transactions.process import Abortable

_FIND: Final = 0
_JOIN: Final = 2
_SYNC: Final = 1
_COMMIT: Final = 3
#: A coordinator waits so long for a member that has died.
_SESSION_MS: Final = 8_000
#: A JoinGroup may take that long, and longer.
_PATIENT: Final = 12.0
#: The time for which a group is asked for, in seconds.
_PATIENCE: Final = 60.0
_BACKOFFS: Final = (0.1, 0.3, 1.0)


class _Again(Exception):
    """The group can't be joined now."""


class Application(Legacy):
    """One life of it, under the client.id of its rule."""

    def __init__(self, tools: LegacyTools) -> None:
        super().__init__(tools)
        number = tools.plan.number
        self._group = f"group-{number}"
        self._client_id = f"app-{number}"
        self._consumer = self._connected(self._client_id, _PATIENT)
        self._writer = self._write_anew()
        self._member, self._generation = "", -1
        #: The position of the group, when it was asked for; None: it has to be joined.
        self._position: int | None = None

    def _write_anew(self) -> MemberWriter:
        return MemberWriter(self._connected(self._client_id), self._tools.history, self.say, stubborn=False)

    async def write(self, claimed: Claimed, batches: Sequence[tuple[int, int]]) -> None:
        await self._begin_at_offsets(claimed)
        try:
            await self._writer.write(claimed, batches)
        except WriteFailed as error:
            raise Abortable(str(error)) from error

    async def end(self, claimed: Claimed, *, committed: bool) -> None:
        """Commits the offset after the transaction's input, or begins at the group's offsets again."""
        if not committed:
            self._position = None
            return
        await self._begin_at_offsets(claimed)
        assert self._position is not None
        self._tools.history.asks(claimed)
        self.say(f"commits {claimed.name} with {self._position + 1}")
        code = await self._commit(self._position + 1)
        if code == 0:
            claimed.told, self._position = True, self._position + 1
            self.say(f"learns that {claimed.name} is committed")
            return
        self.say(f"receives {'nothing' if code is None else ErrorCode(code).name} for {claimed.name}")
        self._position = None

    async def _begin_at_offsets(self, claimed: Claimed) -> None:
        """Moves the group to its committed offsets. ``Fatal`` if they are unavailable."""
        history = self._tools.history
        deadline = trio.current_time() + _PATIENCE
        while self._position is None:
            try:
                self._position = await self._join()
            except (_Again, *LOST) as error:
                self.say(f"does not have its group: {error!r}")
                if trio.current_time() > deadline:
                    raise Fatal("its group can't be joined") from error
                await trio.sleep(self._tools.rng.choice(_BACKOFFS))
        if claimed.input is None:
            claimed.begun = True
            claimed.input = Input(self._group, self._position + 1)
            history.positions[self._group] = max(self._position + 1, history.positions.get(self._group, 0))

    # -- the group

    async def _join(self) -> int:
        """Joins as a consumer's newest member; the group's position."""
        joined = await self._ask(
            JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=_SESSION_MS,
                rebalance_timeout_ms=_SESSION_MS,
                member_id=self._member,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol("range", b"")],
            ),
            _JOIN,
        )
        if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member = ""
        _again(joined.error_code)
        self._member, self._generation = joined.member_id, joined.generation_id
        leads = joined.leader == joined.member_id
        synced = await self._ask(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member,
                assignments=[SyncGroupRequestAssignment(one.member_id, b"") for one in joined.members if leads],
            ),
            _SYNC,
        )
        _again(synced.error_code)
        return await self._fetch()

    async def _fetch(self) -> int:
        topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        request = OffsetFetchRequest(group_id=self._group, topics=[topic])
        answer = await self._ask(request, self._tools.plan.fetches_offsets)
        _again(answer.error_code)  # then there are no topics
        (row,) = answer.topics[0].partitions
        _again(row.error_code)
        position = max(0, int(row.committed_offset))
        self.say(f"begins at {position} in generation {self._generation}")
        return position

    async def _commit(self, position: int) -> int | None:
        """The error code; None if there is no response."""
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member,
            topics=[OffsetCommitRequestTopic(TOPIC, partitions=[OffsetCommitRequestPartition(0, position)])],
        )
        try:
            answer = await self._ask(request, _COMMIT)
        except (_Again, *LOST):
            return None
        return int(answer.topics[0].partitions[0].error_code)

    async def _ask(self, request: Message, version: int) -> Any:
        found: Any = await self._consumer.bootstrap(FindCoordinatorRequest(key=self._group), _FIND)
        _again(found.error_code)
        return await self._consumer.ask((found.host, found.port), request, version)


def _again(code: int) -> None:
    if code:
        raise _Again(ErrorCode(code).name)
