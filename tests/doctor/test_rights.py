from typing import Any

import pytest

from kproxy.codec._generated.init_producer_id import InitProducerIdResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.doctor import rights, topic_checks
from kproxy.doctor.examined import NOT_TOLD
from kproxy.doctor.findings import Level
from kproxy.proxy.authorization.access import OPERATION_CODES
from kproxy.proxy.authorization.acl_rules import Operation
from kproxy.testing.fake_broker import Answer
from tests.doctor.patients import edit, examined, fake, levels, only
from tests.doctor.test_topic_checks import FLEET, LANES, LOG, make_own

ALL = sum(1 << right for right in range(3, 13))


def without(*missing: Operation) -> int:
    return ALL - sum(1 << OPERATION_CODES[operation] for operation in missing)


@pytest.mark.parametrize(
    ("granted", "expected"),
    [
        (ALL, Level.OK),
        (without(Operation.ALTER), Level.OK),
        (without(Operation.CLUSTER_ACTION), Level.OK),
        (without(Operation.ALTER, Operation.CLUSTER_ACTION), Level.WARN),
        (0, Level.SKIPPED),
        (NOT_TOLD, Level.SKIPPED),
    ],
)
async def test_right_to_markers(granted: int, expected: Level) -> None:
    def tell(answer: Any) -> None:
        answer.cluster_authorized_operations = granted

    async with fake(1) as cluster:
        edit(cluster, ApiKey.DESCRIBE_CLUSTER, tell)
        assert levels(rights.markers, await examined(cluster)) == [expected]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.NONE, Level.OK),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, Level.FAIL),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Level.WARN),
    ],
)
async def test_right_to_producer_ids(error: ErrorCode, expected: Level) -> None:
    async with fake(1) as cluster:
        cluster.cluster.control(
            ApiKey.INIT_PRODUCER_ID, lambda call: Answer(InitProducerIdResponse(error_code=error, producer_id=7))
        )
        found = await examined(cluster)
        assert levels(rights.producer_ids, found) == [expected]
        without_ids = await examined(cluster, idempotence_enable=False)
        assert levels(rights.producer_ids, without_ids) == [Level.OK]


async def test_rights_on_own_topics() -> None:
    def tell(answer: Any) -> None:
        for topic in answer.topics:
            topic.topic_authorized_operations = {LANES: without(Operation.WRITE), LOG: without(Operation.DELETE)}[
                topic.name
            ]

    async with fake() as cluster:
        make_own(cluster)
        edit(cluster, ApiKey.METADATA, tell)
        lanes, log = rights.own_topics(await examined(cluster))
    assert (lanes.level, lanes.found) == (Level.FAIL, f"not granted on {LANES}: Write")
    assert (log.level, log.found) == (Level.FAIL, f"not granted on {LOG}: Delete")


async def test_own_topics_that_could_not_be_made() -> None:
    def tell(answer: Any) -> None:
        answer.cluster_authorized_operations = without(Operation.CREATE)

    async with fake() as cluster:
        assert levels(rights.own_topics, await examined(cluster)) == [Level.SKIPPED, Level.SKIPPED]
        edit(cluster, ApiKey.DESCRIBE_CLUSTER, tell)
        assert levels(rights.own_topics, await examined(cluster)) == [Level.WARN, Level.WARN]


async def test_topics_that_may_not_be_read() -> None:
    def tell(answer: Any) -> None:
        for topic in answer.topics:
            topic.topic_authorized_operations = without(Operation.READ) if topic.name == "closed" else ALL

    async with fake(1) as cluster:
        cluster.cluster.create_topic("open", 1, 1)
        assert levels(rights.reading, await examined(cluster)) == [Level.SKIPPED]
        edit(cluster, ApiKey.METADATA, tell)
        assert levels(rights.reading, await examined(cluster)) == [Level.OK]
        cluster.cluster.create_topic("closed", 1, 1)
        finding = only(rights.reading, await examined(cluster))
    assert (finding.level, finding.found) == (Level.WARN, "1 of 2 topics may not be read by kproxy: closed")


async def test_rights_on_the_topic_of_the_fleet_are_optional() -> None:
    def tell(answer: Any) -> None:
        for topic in answer.topics:
            topic.topic_authorized_operations = without(Operation.WRITE) if topic.name == FLEET else ALL

    async with fake(1) as cluster:
        make_own(cluster)
        cluster.cluster.create_topic(FLEET, 8)
        edit(cluster, ApiKey.METADATA, tell)
        findings = list(rights.own_topics(await examined(cluster, fleet_announce_interval_ms=60_000)))
        [found] = [row for row in findings if FLEET in row.found]
        assert found.level is Level.WARN
        assert found.found == f"not granted on {FLEET}: Write"
        assert "serves its clients as before" in str(found)


async def test_a_single_broker_is_no_trouble_for_the_fleet() -> None:
    async with fake(1) as cluster:
        make_own(cluster)
        found = await examined(cluster, fleet_announce_interval_ms=60_000)
        [row] = [row for row in topic_checks.own_topics(found) if FLEET in row.found]
        assert row.level is Level.OK
