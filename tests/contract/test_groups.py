"""Classic consumer groups: joining, syncing, rebalancing, leaving, and the offsets they commit."""

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from kproxy.codec._generated.consumer_protocol_subscription import ConsumerProtocolSubscription
from kproxy.codec._generated.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kproxy.codec._generated.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproxy.codec._generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproxy.codec._generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kproxy.codec._generated.leave_group import LeaveGroupRequest, LeaveGroupRequestMemberIdentity, LeaveGroupResponse
from kproxy.codec._generated.list_groups import ListGroupsRequest, ListGroupsResponse
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kproxy.codec._generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from kproxy.codec._generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kproxy.codec._generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kproxy.codec.messages import ErrorCode
from kproxy.codec.stored import encode_stored
from kproxy.testing.cluster_client import ClusterClient, RawConnection
from tests.contract.coordinators import GROUP, STARTING, find_coordinator


def subscription(note: str, *topics: str) -> bytes:
    """A consumer's metadata in version 0, with ``note`` as user data. A real coordinator parses it."""
    return encode_stored(ConsumerProtocolSubscription(list(topics), note.encode()), 0)


def offered(*protocols: str, topics: Sequence[str] = ()) -> list[JoinGroupRequestProtocol]:
    """What a consumer that is subscribed to ``topics`` offers when it joins."""
    return [JoinGroupRequestProtocol(name=name, metadata=subscription(name, *topics)) for name in protocols]


class Consumer:
    """One group member on a connection of its own."""

    def __init__(self, bootstrap: str, group: str) -> None:
        host, _, port = bootstrap.partition(":")
        self.connection = RawConnection(host, int(port), client_id="contract")
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.members: list[str] = []

    def join(
        self,
        version: int = 3,
        *,
        protocols: Sequence[str] = ("range",),
        topics: Sequence[str] = (),
        **changes: object,
    ) -> JoinGroupResponse:
        """Join, once more while the coordinator starts, and remember what came of it."""
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000 if version else -1,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=offered(*protocols, topics=topics),
        )
        for name, value in changes.items():
            setattr(request, name, value)
        answer = self.connection.call(request, version, JoinGroupResponse)
        while answer.error_code in STARTING:
            answer = self.connection.call(request, version, JoinGroupResponse)
        self.member_id = answer.member_id
        self.generation = answer.generation_id
        self.members = [member.member_id for member in answer.members]
        return answer

    def sync(self, version: int = 2, **changes: object) -> SyncGroupResponse:
        """Sync; a leader assigns each member its own id."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=m, assignment=m.encode()) for m in self.members],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return self.connection.call(request, version, SyncGroupResponse)

    def heartbeat(self, generation: int | None = None) -> ErrorCode:
        """Send a sign of life."""
        generation = self.generation if generation is None else generation
        request = HeartbeatRequest(group_id=self.group, generation_id=generation, member_id=self.member_id)
        return ErrorCode(self.connection.call(request, 2, HeartbeatResponse).error_code)

    def leave(self) -> ErrorCode:
        """Leave the group."""
        request = LeaveGroupRequest(group_id=self.group, member_id=self.member_id)
        return ErrorCode(self.connection.call(request, 1, LeaveGroupResponse).error_code)

    def commit(self, topic: str, offset: int, *, version: int = 7, index: int = 0, metadata: str = "") -> ErrorCode:
        """Commit one offset of a partition under the member's generation."""
        part = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata, committed_leader_epoch=-1
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])],
        )
        while True:
            answer = self.connection.call(request, version, OffsetCommitResponse).topics[0].partitions[0]
            if answer.error_code not in STARTING:
                return ErrorCode(answer.error_code)


@pytest.fixture
def consumer(bootstrap: str, client: ClusterClient, unique: str) -> Iterator[Callable[[], Consumer]]:
    """Makes members of one fresh group."""
    made: list[Consumer] = []
    find_coordinator(client, unique, GROUP)

    def make() -> Consumer:
        made.append(Consumer(bootstrap, unique))
        return made[-1]

    yield make
    for member in made:
        member.connection.close()


def _together(*steps: Callable[[], object]) -> None:
    """Run steps that wait for one another, each in its thread."""
    threads = [threading.Thread(target=step) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_lone_member_leads_its_group(consumer: Callable[[], Consumer], version: int) -> None:
    one = consumer()
    answer = one.join(version)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (ErrorCode.NONE, 1, "range")
    assert answer.leader == answer.member_id == one.members[0]
    assert answer.member_id.startswith("contract-")
    assert answer.members[0].metadata == subscription("range")
    assert one.sync().assignment == one.member_id.encode()
    assert one.heartbeat() is ErrorCode.NONE
    assert one.leave() is ErrorCode.NONE
    assert one.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [4, 5, 6, 7, 8, 9])
def test_from_version_4_a_member_must_come_back_with_its_id(consumer: Callable[[], Consumer], version: int) -> None:
    one = consumer()
    assert one.join(version).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert one.member_id
    answer = one.join(version)
    assert (answer.error_code, answer.leader) == (ErrorCode.NONE, one.member_id)
    synced = one.sync(5, protocol_type="consumer", protocol_name="range")
    assert (synced.error_code, synced.protocol_type, synced.protocol_name) == (ErrorCode.NONE, "consumer", "range")
    assert one.leave() is ErrorCode.NONE


def test_a_second_member_makes_the_first_rejoin(consumer: Callable[[], Consumer]) -> None:
    one, two = consumer(), consumer()
    one.join()
    one.sync()

    def rejoin() -> None:
        while one.heartbeat() is not ErrorCode.REBALANCE_IN_PROGRESS:
            pass
        one.join()

    _together(two.join, rejoin)
    assert one.generation == two.generation == 2
    assert sorted(one.members) == sorted([one.member_id, two.member_id])
    assert two.members == []
    assignments: dict[str, bytes] = {}
    _together(
        lambda: assignments.update(two=two.sync().assignment), lambda: assignments.update(one=one.sync().assignment)
    )
    assert assignments == {"one": one.member_id.encode(), "two": two.member_id.encode()}
    assert two.leave() is ErrorCode.NONE
    assert one.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    one.join()
    assert (one.generation, one.members) == (3, [one.member_id])


def test_the_protocol_that_all_speak_wins(consumer: Callable[[], Consumer]) -> None:
    one, two = consumer(), consumer()
    one.join(protocols=("sticky", "range"))
    one.sync()
    answers: list[JoinGroupResponse] = []

    def rejoin() -> None:
        while one.heartbeat() is not ErrorCode.REBALANCE_IN_PROGRESS:
            pass
        answers.append(one.join(protocols=("sticky", "range")))

    _together(lambda: answers.append(two.join(protocols=("range", "other"))), rejoin)
    assert {answer.protocol_name for answer in answers} == {"range"}
    stranger = consumer()
    assert stranger.join(protocols=("elsewhere",)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_silent_member_is_thrown_out(consumer: Callable[[], Consumer]) -> None:
    one, two = consumer(), consumer()
    one.join(session_timeout_ms=6_000, rebalance_timeout_ms=500)
    one.sync()
    assert two.join().error_code == ErrorCode.NONE
    assert (two.generation, two.members) == (2, [two.member_id])
    assert one.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 10}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 10_000_000}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_bad_joins(consumer: Callable[[], Consumer], changes: dict[str, object], error: ErrorCode) -> None:
    assert ErrorCode(consumer().join(**changes).error_code) is error  # type: ignore[arg-type]


def test_strangers_and_old_generations(consumer: Callable[[], Consumer]) -> None:
    one, stranger = consumer(), consumer()
    stranger.member_id = "nobody"
    assert stranger.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    one.join()
    assert one.heartbeat() is ErrorCode.NONE
    assert stranger.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert one.sync(generation_id=7).error_code == ErrorCode.ILLEGAL_GENERATION
    assert one.sync(5, protocol_name="other").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    one.sync()
    assert one.heartbeat(7) is ErrorCode.ILLEGAL_GENERATION
    assert stranger.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [3, 4, 5])
def test_several_members_may_leave_at_once(consumer: Callable[[], Consumer], version: int) -> None:
    one = consumer()
    one.join()
    one.sync()
    members = [LeaveGroupRequestMemberIdentity(member_id=name) for name in (one.member_id, "nobody")]
    answer = one.connection.call(LeaveGroupRequest(group_id=one.group, members=members), version, LeaveGroupResponse)
    assert answer.error_code == ErrorCode.NONE
    errors = {member.member_id: member.error_code for member in answer.members}
    assert errors == {one.member_id: ErrorCode.NONE, "nobody": ErrorCode.UNKNOWN_MEMBER_ID}


def _fetch_one(one: Consumer, topic: str, version: int, index: int = 0) -> tuple[int, str | None, int]:
    if version >= 8:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[index])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=one.group, topics=topics)])
        new = one.connection.call(request, version, OffsetFetchResponse).groups[0].topics[0].partitions[0]
        return new.committed_offset, new.metadata, new.error_code
    topic_wanted = OffsetFetchRequestTopic(name=topic, partition_indexes=[index])
    request = OffsetFetchRequest(group_id=one.group, topics=[topic_wanted])
    old = one.connection.call(request, version, OffsetFetchResponse).topics[0].partitions[0]
    return old.committed_offset, old.metadata, old.error_code


@pytest.mark.parametrize("version", range(2, 10))
def test_anyone_may_commit_to_a_group_without_members(
    consumer: Callable[[], Consumer], topic: str, version: int
) -> None:
    one = consumer()
    assert one.commit(topic, 42, version=version, metadata="note") is ErrorCode.NONE
    for fetch_version in range(1, 10):
        assert _fetch_one(one, topic, fetch_version) == (42, "note", 0)


def test_nothing_committed(consumer: Callable[[], Consumer], topic: str) -> None:
    one = consumer()
    one.commit(topic, 42)
    for version in range(1, 10):
        assert _fetch_one(one, topic, version, index=1) == (-1, "", 0)
    assert _fetch_one(one, "contract-no-such-topic", 5) == (-1, "", 0)


def test_all_offsets_of_a_group(consumer: Callable[[], Consumer], topic: str) -> None:
    one = consumer()
    one.commit(topic, 5, index=0)
    one.commit(topic, 6, index=1)
    answer = one.connection.call(OffsetFetchRequest(group_id=one.group, topics=None), 5, OffsetFetchResponse)
    found = {part.partition_index: part.committed_offset for part in answer.topics[0].partitions}
    assert ([entry.name for entry in answer.topics], found) == ([topic], {0: 5, 1: 6})
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in (one.group, "contract-no-such-group")]
    answer = one.connection.call(OffsetFetchRequest(groups=groups), 8, OffsetFetchResponse)
    assert [(group.group_id, group.error_code, len(group.topics)) for group in answer.groups] == [
        (one.group, 0, 1),
        ("contract-no-such-group", 0, 0),
    ]


def test_commits_of_members_need_their_generation(consumer: Callable[[], Consumer], topic: str) -> None:
    one, stranger = consumer(), consumer()
    one.generation = 3
    assert one.commit(topic, 1) is ErrorCode.ILLEGAL_GENERATION
    one.join()
    assert one.commit(topic, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    one.sync()
    assert one.commit(topic, 1) is ErrorCode.NONE
    assert stranger.commit(topic, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    one.generation += 1
    assert one.commit(topic, 2) is ErrorCode.ILLEGAL_GENERATION
    assert _fetch_one(one, topic, 5)[0] == 1


def test_commits_that_are_refused(consumer: Callable[[], Consumer], topic: str) -> None:
    one = consumer()
    assert one.commit(topic, 1, index=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert one.commit("contract-no-such-topic", 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert one.commit(topic, 1, metadata="x" * 5000) is ErrorCode.OFFSET_METADATA_TOO_LARGE


@pytest.mark.parametrize("version", range(7))
def test_describe_groups(consumer: Callable[[], Consumer], client: ClusterClient, version: int) -> None:
    one = consumer()
    one.join()
    request = DescribeGroupsRequest(groups=[one.group, "contract-no-such-group"])
    described = client.any_broker().call(request, version, DescribeGroupsResponse).groups
    assert described[0].group_state == "CompletingRebalance"
    one.sync()
    known, unknown = client.any_broker().call(request, version, DescribeGroupsResponse).groups
    assert (known.group_state, known.protocol_type, known.protocol_data) == ("Stable", "consumer", "range")
    member = known.members[0]
    assert (member.member_id, member.client_id, member.client_host) == (one.member_id, "contract", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription("range"), one.member_id.encode())
    assert unknown.group_state == "Dead"
    assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    one.leave()
    assert client.any_broker().call(request, version, DescribeGroupsResponse).groups[0].group_state == "Empty"


@pytest.mark.parametrize("version", [2, 3])
def test_list_and_delete_groups(
    consumer: Callable[[], Consumer], client: ClusterClient, topic: str, version: int
) -> None:
    one = consumer()
    one.join()
    one.sync()

    def listed(states: list[str]) -> list[str]:
        request = ListGroupsRequest(states_filter=states)
        return [group.group_id for group in client.any_broker().call(request, 4, ListGroupsResponse).groups]

    def delete() -> ErrorCode:
        request = DeleteGroupsRequest(groups_names=[one.group])
        (row,) = client.any_broker().call(request, version, DeleteGroupsResponse).results
        assert row.error_message is None
        return ErrorCode(row.error_code)

    assert one.group in listed([])
    assert one.group in listed(["Stable"])
    assert one.group not in listed(["Empty"])
    one.commit(topic, 1)
    assert delete() is ErrorCode.NON_EMPTY_GROUP
    one.leave()
    assert delete() is ErrorCode.NONE
    assert delete() is ErrorCode.GROUP_ID_NOT_FOUND
    assert one.group not in listed([])
    assert _fetch_one(one, topic, 5)[0] == -1


def test_offsets_are_deleted_unless_members_are_subscribed(
    consumer: Callable[[], Consumer], client: ClusterClient, topic: str
) -> None:
    one = consumer()

    def delete(name: str, *indexes: int) -> tuple[ErrorCode, list[ErrorCode]]:
        rows = [OffsetDeleteRequestPartition(index) for index in indexes]
        request = OffsetDeleteRequest(one.group, [OffsetDeleteRequestTopic(name, rows)])
        answer = one.connection.call(request, 0, OffsetDeleteResponse)
        found = {row.partition_index: ErrorCode(row.error_code) for part in answer.topics for row in part.partitions}
        return ErrorCode(answer.error_code), [found[index] for index in indexes] if found else []

    assert delete(topic, 0) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    one.join(topics=["another-topic", topic])
    one.sync()
    assert one.commit(topic, 5) is ErrorCode.NONE
    assert delete(topic, 0) == (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
    assert _fetch_one(one, topic, 5)[0] == 5
    one.join(topics=["another-topic"])
    one.sync()
    assert delete(topic, 0, 99) == (ErrorCode.NONE, [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    assert _fetch_one(one, topic, 5)[0] == -1
    one.leave()
    assert delete(topic, 0) == (ErrorCode.NONE, [ErrorCode.NONE]), "there is nothing to delete"


def test_offsets_by_topic_id(consumer: Callable[[], Consumer], client: ClusterClient, topic: str) -> None:
    one = consumer()
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    topic_id = client.any_broker().call(asked, 12, MetadataResponse).topics[0].topic_id
    for place, error in ((topic_id, ErrorCode.NONE), (b"\x01" * 16, ErrorCode.UNKNOWN_TOPIC_ID)):
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=one.group, topics=[OffsetCommitRequestTopic(topic_id=place, partitions=[part])]
        )
        committed = one.connection.call(request, 10, OffsetCommitResponse).topics[0]
        while committed.partitions[0].error_code in STARTING:
            committed = one.connection.call(request, 10, OffsetCommitResponse).topics[0]
        assert (committed.topic_id, ErrorCode(committed.partitions[0].error_code)) == (place, error)
        wanted = [OffsetFetchRequestTopics(topic_id=place, partition_indexes=[0])]
        fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=one.group, topics=wanted)])
        fetched = one.connection.call(fetch, 10, OffsetFetchResponse).groups[0].topics[0]
        assert (fetched.topic_id, ErrorCode(fetched.partitions[0].error_code)) == (place, error)
        assert fetched.partitions[0].committed_offset == (-1 if error else 7)


@pytest.mark.parametrize("version", range(7))
def test_every_version_finds_the_coordinator(
    consumer: Callable[[], Consumer], client: ClusterClient, version: int
) -> None:
    group = consumer().group
    broker = client.metadata().brokers[0]
    request = FindCoordinatorRequest(key=group)
    if version >= 4:
        request = FindCoordinatorRequest(coordinator_keys=[group, f"{group}-b"])
    answer = client.any_broker().call(request, version, FindCoordinatorResponse)
    if version < 4:
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, broker.host, broker.port)
    else:
        found = [(entry.key, entry.error_code, entry.node_id, entry.port) for entry in answer.coordinators]
        assert found == [(group, 0, 1, broker.port), (f"{group}-b", 0, 1, broker.port)]
