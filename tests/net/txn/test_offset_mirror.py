"""Offsets of committed transactions, written to the broker's own group offsets: always there, never moved back."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kproxy.codec._generated.api_versions import ApiVersionsResponse
from kproxy.codec._generated.delete_groups import DeleteGroupsRequest
from kproxy.codec._generated.end_txn import EndTxnRequest
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.offset_commit import OffsetCommitRequest
from kproxy.codec._generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kproxy.codec._generated.transaction_mirrored import TransactionMirrored
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.net.txn import group_offset_requests, offset_mirror
from kproxy.net.txn.offset_mirror import OffsetMirror
from kproxy.testing.fake_broker import Answer, Close, CloseAfter, Edit
from kproxy.testing.fake_broker.consumer_groups import Group, GroupState
from kproxy.testing.fake_broker.fake_api import Call
from kproxy.testing.fake_broker.group_members import Member
from kproxy.txn.ids import turn_of
from kproxy.txn.log_records import Entry
from kproxy.txn.txn_error import TxnError
from tests.net.brokers.coordinator_pauses import hurry
from tests.net.harness import eventually
from tests.net.txn.fake_groups import FakeGroups
from tests.net.txn.group_client import commit, commit_request, fetched
from tests.net.txn.group_scene import Scene, scene
from tests.txn.offsets_log import OffsetsLog


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without the pauses that leave time for more to be written together."""
    monkeypatch.setattr(offset_mirror, "_LINGER_SECONDS", 0.0)
    hurry(monkeypatch)
    yield


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the background nothing is written."""
    monkeypatch.setattr(offset_mirror, "_LINGER_SECONDS", 1000.0)


def left(at: Scene, group: str = "g") -> int:
    """Records that both kproxys take for unwritten."""
    return sum(1 for side in (at.proxy, at.other) for _ in side.transactions.views.unmirrored_offsets(group))


def live_group(at: Scene, generation: int = 7) -> Group:
    """A group with a member, at a generation that no transaction knows."""
    group = Group("g", GroupState.STABLE, generation)
    group.members["m"] = Member("m", None, "c", "h", 1 << 50, 1 << 50, 0)
    at.groups["g"] = group
    return group


class TestWriting:
    async def test_the_broker_has_it_soon_and_the_log_says_so(self) -> None:
        async with scene(3) as at:
            await at.move(5)
            await eventually(lambda: at.broker_has() == 5 and not left(at))
            assert await fetched(at.reader, "none", 7, ("t", 0)) == [(-1, 0)]
            assert at.groups["g"].offsets["t", 0].metadata == "m"

    async def test_a_live_group_takes_it_whatever_its_generation(self) -> None:
        async with scene() as at:
            live_group(at)
            await at.move(5)
            await eventually(lambda: at.broker_has() == 5 and not left(at))

    async def test_an_abort_writes_nothing(self) -> None:
        async with scene() as at:
            await at.move(5, end=False)
            await at.move(6, "h")
            await eventually(lambda: at.broker_has("h") == 6 and not left(at, "h"))
            assert at.broker_has() is None

    async def test_metadata_that_the_broker_finds_too_long_are_left_out(self) -> None:
        async with scene() as at:
            at.proxy.brokers.config = at.proxy.brokers.config.__class__(offset_metadata_max_bytes=0)
            await at.move(5)
            await eventually(lambda: at.broker_has() == 5 and not left(at))
            assert at.groups["g"].offsets["t", 0].metadata == ""

    async def test_a_deleted_topic_holds_up_nothing(self) -> None:
        async with scene() as at:
            assert await at.producer.add_offsets("g") == 0
            assert await at.producer.commit_offsets("g", [("gone", 0, 4), ("t", 0, 5)]) == [0, 0]
            assert await at.producer.end() == 0
            await eventually(lambda: at.broker_has() == 5 and not left(at))

    @pytest.mark.parametrize("key", [ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN])
    @pytest.mark.parametrize("fault", [Close(), CloseAfter()], ids=["lost", "answer-lost"])
    async def test_it_survives_lost_requests_and_answers(self, key: ApiKey, fault: Any) -> None:
        async with scene() as at:
            at.proxy.brokers.control(key, lambda _: fault, times=1)
            await at.move(5)
            await eventually(lambda: at.broker_has() == 5 and not left(at))

    async def test_what_an_ended_kproxy_left_is_written_by_another(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(offset_mirror, "_SWEEP_SECONDS", 0.05)
        async with scene() as at:
            mirror = at.proxy.transactions._mirror
            monkeypatch.setattr(mirror, "_write", _never)
            await at.move(5)
            await eventually(lambda: at.broker_has() == 5 and not left(at))

    async def test_what_no_broker_takes_is_bounded_and_nothing_of_it_is_dropped(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(offset_mirror, "_SWEEP_SECONDS", 0.05)
        async with scene() as at:
            mirror = at.proxy.transactions._mirror
            write = mirror._write
            for side in (at.proxy, at.other):
                monkeypatch.setattr(side.transactions._mirror, "_write", _never)
            await at.move(5)
            await at.move(6)
            monkeypatch.setattr(offset_mirror, "_MOST_BYTES", at.proxy.transactions.views.offsets_bytes)
            assert await at.producer.add_offsets("h") == 0
            later = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            with structlog.testing.capture_logs() as logged:
                assert await at.producer.commit_offsets("h", [("t", 0, 1)]) == [later]
                assert await at.producer.commit_offsets("h", [("t", 0, 1)]) == [later]
            assert [row["log_level"] for row in logged if "refused until earlier ones" in row["event"]] == ["warning"]
            monkeypatch.setattr(mirror, "_write", write)
            await eventually(lambda: at.broker_has() == 6 and not left(at))
            assert await at.producer.commit_offsets("h", [("t", 0, 1)]) == [0]
            assert await at.producer.end() == 0
            await eventually(lambda: at.broker_has("h") == 1)

    async def test_written_and_not_said_is_written_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(offset_mirror, "_SWEEP_SECONDS", 0.05)
        async with scene() as at:
            failed: list[int] = []
            append = at.proxy.transactions.log.append_unfenced

            async def fail_once(entry: Any) -> None:
                if not failed:
                    failed.append(1)
                    raise OSError("it ends here")
                await append(entry)

            monkeypatch.setattr(at.proxy.transactions.log, "append_unfenced", fail_once)
            await at.move(5)
            await eventually(lambda: at.broker_has() == 5 and not left(at))
            assert failed

    async def test_a_broker_without_transactions_gets_a_plain_commit(self) -> None:
        async with scene() as at:
            await at.move(4)
            await eventually(lambda: not left(at))
            at.proxy.brokers.control(ApiKey.API_VERSIONS, lambda _: Edit(_without_transactions))
            at.proxy.brokers.control(ApiKey.TXN_OFFSET_COMMIT, lambda _: Close())
            for side in (at.proxy, at.other):
                for broker in side.cluster.map.brokers.values():
                    broker.versions = None
            await at.move(5)
            await eventually(lambda: at.broker_has() == 5 and not left(at))

    async def test_so_does_one_that_lets_kproxy_have_none(self) -> None:
        async with scene() as at:
            answer = InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            at.proxy.brokers.control(
                ApiKey.INIT_PRODUCER_ID, lambda call: Answer(answer) if _is_mirrors(call) else None
            )
            await at.move(5)
            await eventually(lambda: at.broker_has() == 5 and not left(at))


async def _never(group_id: str) -> None:
    raise OSError("this kproxy is gone")


def _without_transactions(answer: Message) -> None:
    assert isinstance(answer, ApiVersionsResponse)
    answer.api_keys = [row for row in answer.api_keys if row.api_key not in (25, 26, 28)]


class TestOrder:
    @pytest.mark.usefixtures("by_hand")
    @pytest.mark.parametrize("version", [0, 1, 2, 7, 9])
    async def test_a_later_plain_commit_wins_in_every_version(self, version: int) -> None:
        async with scene() as at:
            await at.move(5)
            assert await commit(at.reader, "g", 3, version) == 0
            assert not left(at)
            assert at.broker_has() == 3
            assert await fetched(at.reader, "g", 7, ("t", 0)) == [(3, 0)]

    @pytest.mark.parametrize("delay", [0.0, 0.05], ids=["at once", "while it is written"])
    @pytest.mark.parametrize("delete", ["group", "offset"])
    async def test_what_is_deleted_after_a_commit_stays_deleted(
        self, delete: str, delay: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(offset_mirror, "_LINGER_SECONDS", delay)
        async with scene() as at:
            await at.move(5)
            if delete == "group":
                answer = await at.reader.call(DeleteGroupsRequest(["g"]), 2)
                assert [row.error_code for row in answer.results] == [0]
            else:
                rows = [OffsetDeleteRequestPartition(0)]
                answer = await at.reader.call(OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", rows)]), 0)
                assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
            assert await fetched(at.reader, "g", 7, ("t", 0)) == [(-1, 0)]
            await eventually(lambda: not left(at))
            await trio.sleep(2 * delay)
            await wait_all_tasks_blocked(0.01)
            assert at.broker_has() is None
            assert await fetched(at.reader, "g", 7, ("t", 0)) == [(-1, 0)]

    @pytest.mark.usefixtures("by_hand")
    async def test_also_where_the_log_was_not_there_before(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(group_offset_requests, "_ABSENT_SECONDS", 0.0)
        async with scene(opened=False) as at:
            await at.move(5)
            assert await commit(at.reader, "g", 3) == 0
            assert await fetched(at.reader, "g", 7, ("t", 0)) == [(3, 0)]

    @pytest.mark.usefixtures("by_hand")
    async def test_and_leaves_the_transactions_other_partitions_alone(self) -> None:
        async with scene() as at:
            await at.move(5, index=1)
            assert await commit(at.reader, "g", 3) == 0
            assert await fetched(at.reader, "g", 7, ("t", 0), ("t", 1)) == [(3, 0), (5, 0)]

    @pytest.mark.parametrize(
        "key", [ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN]
    )
    async def test_who_is_held_up_anywhere_puts_nothing_back(self, key: ApiKey) -> None:
        """The one kproxy's request is in flight while the other writes the same, and then a plain commit."""
        async with scene() as at:
            held, go = trio.Event(), trio.Event()

            async def hold(call: Call) -> None:
                if _is_mirrors(call) and not held.is_set():
                    held.set()
                    await go.wait()

            at.proxy.brokers.control(key, hold)
            await at.move(5)
            with trio.fail_after(120):
                await held.wait()
            assert await commit(at.reader, "g", 3) == 0
            assert at.broker_has() == 3
            go.set()
            await eventually(lambda: not at.proxy.transactions._mirror._locks["g"].locked())
            assert at.broker_has() == 3
            assert await fetched(at.reader, "g", 7, ("t", 0)) == [(3, 0)]

    async def test_nor_who_began_between_what_another_wrote_and_its_word_in_the_log(self) -> None:
        """The other's fence after its record in the log is what stops it: without that the last assertion fails."""
        async with scene() as at:
            waits, go, held, on = trio.Event(), trio.Event(), trio.Event(), trio.Event()
            append = at.other.transactions.log.append_unfenced

            async def say_later(entry: Any) -> None:
                waits.set()
                await go.wait()
                await append(entry)

            async def hold(call: Call) -> None:
                if _is_mirrors(call) and waits.is_set() and not held.is_set():
                    held.set()
                    await on.wait()

            at.other.transactions.log.append_unfenced = say_later
            mirror = at.proxy.transactions._mirror
            async with trio.open_nursery() as nursery, mirror._lock("g"):
                await at.move(5)
                at.proxy.brokers.control(ApiKey.TXN_OFFSET_COMMIT, hold)
                answers: list[int] = []

                async def plain() -> None:
                    answers.append(await commit(at.reader, "g", 3))

                nursery.start_soon(plain)
                with trio.fail_after(120):
                    await waits.wait()
                nursery.start_soon(_write_ignoring, mirror)
                with trio.fail_after(120):
                    await held.wait()
                go.set()
                await eventually(lambda: answers == [0])
                on.set()
                await trio.testing.wait_all_tasks_blocked(0.1)
                assert at.broker_has() == 3

    @pytest.mark.usefixtures("by_hand")
    async def test_the_log_is_read_after_the_fence_and_before_anything_is_written(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What was read before is what the fence may have left behind: another may have written it, and more."""
        async with scene() as at:
            await at.move(5)
            mirror, done = at.proxy.transactions._mirror, []

            def noted(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
                async def do(*given: Any) -> Any:
                    done.append(name)
                    result = await work(*given)
                    done.append(f"{name} done")
                    return result

                return do

            monkeypatch.setattr(offset_mirror, "fence", noted("fence", offset_mirror.fence))
            monkeypatch.setattr(offset_mirror, "write", noted("write", offset_mirror.write))
            monkeypatch.setattr(mirror, "_read_to_end", noted("read", mirror._read_to_end))
            await mirror.settle("g")
            steps = ["fence", "fence done", "read", "read done"]
            assert done == [*steps, "write", "write done", "read", "read done", *steps, "read", "read done"]

    @pytest.mark.usefixtures("by_hand")
    async def test_plain_commits_of_one_connection_keep_their_order(self) -> None:
        async with scene() as at:
            await at.move(5)
            for offset in range(10, 20):
                await at.reader.send(commit_request("g", offset), 7)
            answers = [await at.reader.receive() for _ in range(10)]
            assert [answer.topics[0].partitions[0].error_code for answer in answers] == [0] * 10
            assert at.broker_has() == 19

    @pytest.mark.usefixtures("by_hand")
    async def test_a_plain_commit_waits_if_what_comes_before_cant_be_written(self) -> None:
        async with scene() as at:
            await at.move(5)
            refused = at.proxy.brokers.control(ApiKey.TXN_OFFSET_COMMIT, lambda _: Close())
            assert await commit(at.reader, "g", 3) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert await commit(at.reader, "other", 3) == 0
            at.proxy.brokers.controls.remove(refused)
            assert await commit(at.reader, "g", 3) == 0
            assert await fetched(at.reader, "g", 7, ("t", 0)) == [(3, 0)]

    async def test_the_log_answers_until_the_offsets_can_be_read_at_the_broker(self) -> None:
        """A broker answers EndTxn before the markers are written: until then its OffsetFetch has the old offsets."""
        async with scene() as at:
            asked: list[type] = []

            def note(call: Call) -> None:
                if _is_mirrors(call):
                    asked.append(type(call.request))

            for key in (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN):
                at.proxy.brokers.control(key, note)
            at.proxy.brokers.hold_markers()
            await at.move(5)
            await eventually(lambda: asked[-2:] == [EndTxnRequest, InitProducerIdRequest])
            assert at.broker_has() is None
            assert await fetched(at.reader, "g", 5, ("t", 0)) == [(5, 0)]
            at.proxy.brokers.release_markers()
            await eventually(lambda: at.broker_has() == 5 and not left(at))

    async def test_nor_goes_it_on_without_the_fence(self) -> None:
        async with scene() as at:
            await at.move(5)
            await eventually(lambda: not left(at))
            refused = at.proxy.brokers.control(
                ApiKey.INIT_PRODUCER_ID, lambda call: Close() if _is_mirrors(call) else None
            )
            assert await commit(at.reader, "g", 3) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            at.proxy.brokers.controls.remove(refused)
            assert await commit(at.reader, "g", 3) == 0
            assert at.broker_has() == 3


async def _write_ignoring(mirror: Any) -> None:
    with suppress(OSError):
        await mirror._write("g")


def _is_mirrors(call: Call) -> bool:
    name = getattr(call.request, "transactional_id", None)
    return name is not None and name.startswith("__kproxy_group_offsets.")


class Desk:
    """The mirror of instance ``b``, over a log in memory and a broker without transactions, which is asked once."""

    def __init__(self, instances: Mapping[str, str] | None = None, *, has_transactions: bool = False) -> None:
        self.log = OffsetsLog(instances)
        self.groups = FakeGroups(has_transactions=has_transactions)
        self.cannot_read = self.cannot_append = False
        log: Any = SimpleNamespace(views=self.log.views, append_unfenced=self._append)
        self.mirror = OffsetMirror(self.groups, log, "b", self._read)  # type: ignore[arg-type]

    async def _read(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.cannot_read:
            raise OSError("no answer")

    async def _append(self, entry: Entry) -> None:
        await trio.lowlevel.checkpoint()
        if not self.cannot_append:
            self.log.add(entry.transactional_id, entry.body)
            self.mirror.view_changed(entry)

    def commit(self, *names: str) -> None:
        """A transaction of each id moves a group of its own, which has the id's name."""
        for name in names:
            self.log.commit(name, 0, 5, group=name)

    def written(self) -> dict[str, float]:
        """The groups of which offsets were written, and when, in seconds."""
        return {one.key: one.at for one in self.groups.asked}


@asynccontextmanager
async def running_mirror(desk: Desk) -> AsyncIterator[float]:
    """It writes in the background; the time at which it began."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.mirror.run)
        yield trio.current_time()
        nursery.cancel_scope.cancel()


class TestInTheBackground:
    async def test_own_offsets_at_the_first_look_and_those_of_others_at_their_second(
        self, autojump_clock: MockClock
    ) -> None:
        others = {"x": "a", "y": "c"}
        desk = Desk({"mine": "b", **others, "z": "a"})
        desk.commit("mine", *others)
        second = offset_mirror._SWEEP_SECONDS * (1 + turn_of("b"))
        third = second + offset_mirror._SWEEP_SECONDS
        async with running_mirror(desk) as began:
            await trio.sleep(1)
            assert desk.written() == {"mine": began}
            desk.commit("z")
            await trio.sleep(third + 1)
        rounded = {name: round(at - began, 3) for name, at in desk.written().items()}
        assert rounded == {"mine": 0, "x": round(second, 3), "y": round(second, 3), "z": round(third, 3)}
        assert len(desk.groups.asked) == 4
        assert not desk.log.views.unsettled()

    async def test_what_a_group_commits_within_a_second_is_written_together(
        self, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(offset_mirror, "_LINGER_SECONDS", 1.0)
        desk = Desk()
        async with running_mirror(desk) as began:
            await trio.sleep(2)
            for name in ("x", "y"):
                desk.log.commit(name, 0, 5)
                desk.mirror.committed(name)
                await trio.sleep(0.5)
            await trio.sleep(5)
        assert [round(one.at - began, 3) for one in desk.groups.asked] == [3]
        assert not desk.log.views.unsettled()

    async def test_four_groups_are_written_at_a_time(self, autojump_clock: MockClock) -> None:
        names = [f"id{number}" for number in range(10)]
        desk = Desk()
        desk.commit(*names)
        desk.groups.go = trio.Event()
        async with running_mirror(desk):
            for name in names:
                desk.mirror.committed(name)
            await trio.sleep(1)
            assert list(desk.written()) == names[:4]
            desk.groups.go.set()
            await trio.sleep(1)
            assert sorted(desk.written()) == names

    async def test_what_was_written_meanwhile_or_never_was_committed_is_not_asked_for(
        self, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(offset_mirror, "_LINGER_SECONDS", 5.0)
        desk = Desk({"id": "a"}, has_transactions=True)
        desk.commit("id")
        async with running_mirror(desk):
            desk.mirror.committed("id")
            desk.mirror.committed("unknown")
            await desk.mirror.settle("id")
            asked = len(desk.groups.asked)
            await trio.sleep(10)
            assert len(desk.groups.asked) == asked


class TestSettling:
    async def test_nothing_is_written_after_a_log_that_cannot_be_read(self) -> None:
        desk = Desk(has_transactions=True)
        desk.commit("g")
        desk.cannot_read = True
        with pytest.raises(OSError, match="no answer"):
            await desk.mirror.settle("g")
        assert desk.groups.kinds() == [InitProducerIdRequest]
        desk.log.mirrored("g", 0)
        assert desk.mirror.is_unsettled("g"), "a fence whose reader failed may have let others write"

    async def test_it_gives_up_after_three_writes_that_the_log_does_not_report(self) -> None:
        desk = Desk()
        desk.commit("g")
        desk.cannot_append = True
        with pytest.raises(OSError, match="group g are being written elsewhere"):
            await desk.mirror.settle("g")
        assert desk.groups.kinds() == [OffsetCommitRequest] * 3

    async def test_a_group_is_written_by_one_at_a_time_however_many_others_are(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(offset_mirror, "_MOST_GROUPS", 3)
        desk, others = Desk(), [f"id{number}" for number in range(9)]
        desk.commit("g", *others)
        async with trio.open_nursery() as nursery:
            desk.groups.go = trio.Event()
            nursery.start_soon(desk.mirror.settle, "g")
            await wait_all_tasks_blocked()
            go, desk.groups.go = desk.groups.go, trio.Event()
            desk.groups.go.set()
            for name in others:
                await desk.mirror.settle(name)
                assert len(desk.mirror._locks) <= 3
            nursery.start_soon(desk.mirror.settle, "g")
            await wait_all_tasks_blocked()
            assert [one.key for one in desk.groups.asked].count("g") == 1
            go.set()

    def test_the_groups_to_be_fenced_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(offset_mirror, "_MOST_GROUPS", 2)
        desk = Desk()
        for group in "abc":
            desk.mirror.view_changed(Entry("id", TransactionMirrored(1, 0, group)))
        assert [desk.mirror.is_unsettled(group) for group in "abc"] == [False, True, True]

    def test_it_is_warned_once_each_time_that_no_more_offsets_are_accepted(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk, warned = Desk(), []
        for most in (0, 0, 1, 0):
            monkeypatch.setattr(offset_mirror, "_MOST_BYTES", most)
            with structlog.testing.capture_logs() as logged, suppress(TxnError):
                desk.mirror.check_room()
            warned.append(len(logged))
        assert warned == [1, 0, 0, 1]
