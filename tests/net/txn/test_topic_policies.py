"""Which topics are compacted."""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import structlog
import trio

from kproxy.budget import unbounded
from kproxy.codec._generated.describe_configs import DescribeConfigsResponse
from kproxy.codec._generated.describe_configs import DescribeConfigsResponseDescribeConfigsResourceResult as Setting
from kproxy.codec._generated.describe_configs import DescribeConfigsResponseDescribeConfigsResult as Described
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.codec.version_choice import VersionRange, choose_version
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.txn import topic_policies
from kproxy.net.txn.log_topic import TOPIC
from kproxy.net.txn.topic_policies import TopicPolicies
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.fake_broker import Call, Close, Edit, FakeCluster, open_fake_cluster
from kproxy.testing.kafka import RealKafka
from kproxy.txn.txn_error import TxnError
from tests.net.txn.writer_harness import connections


@asynccontextmanager
async def policies() -> AsyncIterator[tuple[FakeCluster, TopicPolicies, list[str]]]:
    """A fake cluster, what is asked of it, and the topics that it was asked for."""
    async with open_fake_cluster() as fake, connections(fake.bootstrap) as (_, pool):
        await pool.cluster.refresh()
        asked: list[str] = []

        def note(call: Call) -> None:
            (resource,) = call.request.resources
            assert (resource.resource_type, resource.configuration_keys) == (2, ["cleanup.policy"])
            asked.append(resource.resource_name)

        fake.cluster.control(ApiKey.DESCRIBE_CONFIGS, note)
        yield fake.cluster, TopicPolicies(pool.cluster), asked


def saying(error: int) -> Edit:
    """Brokers refuse."""

    def refuse(result: Any) -> None:
        result.error_code, result.configs = error, []

    return each(refuse)


def each(change: Callable[[Any], object]) -> Edit:
    """Brokers answer something else of a topic."""

    def edit(response: Any) -> None:
        for result in response.results:
            change(result)

    return Edit(edit)


async def test_compact_alone_or_with_delete() -> None:
    async with policies() as (brokers, known, _):
        brokers.create_topic("plain")
        for name, policy in (("a", "compact"), ("b", "delete,compact"), ("c", "delete"), ("d", "")):
            brokers.create_topic(name, config={"cleanup.policy": policy})
        found = {topic: await known.is_compacted(topic) for topic in ("plain", "a", "b", "c", "d")}
        assert found == {"plain": False, "a": True, "b": True, "c": False, "d": False}


async def test_who_looks_for_the_cause_of_a_refusal_finds_the_topic_in_the_log() -> None:
    async with policies() as (brokers, known, _):
        brokers.create_topic("t", config={"cleanup.policy": "compact"})
        with structlog.testing.capture_logs() as logged:
            assert [await known.is_compacted("t"), await known.is_compacted("t")] == [True, True]
        [line] = [line for line in logged if line["log_level"] == "warning"]
        assert line["topic"] == "t"
        assert "transactions.home" in line["advice"]


async def test_an_answer_is_believed_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async with policies() as (brokers, known, asked):
        brokers.create_topic("t")
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(known.is_compacted, "t")
        assert asked == ["t"]
        brokers.topics["t"].config["cleanup.policy"] = "compact"
        assert not await known.is_compacted("t")
        monkeypatch.setattr(topic_policies, "_KEPT_SECONDS", 0.0)
        fresh = TopicPolicies(known._cluster)
        assert [await fresh.is_compacted("t"), await fresh.is_compacted("t")] == [True, True]
        assert asked == ["t"] * 3


async def test_no_more_topics_are_remembered_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_policies, "_MOST_TOPICS", 2)
    async with policies() as (brokers, known, asked):
        for topic in ("a", "b", "c"):
            brokers.create_topic(topic)
            await known.is_compacted(topic)
        for topic in ("c", "b", "a"):
            await known.is_compacted(topic)
        assert asked == ["a", "b", "c", "a"]


@pytest.mark.idle_clock
async def test_the_topic_that_was_asked_for_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_policies, "_MOST_TOPICS", 3)
    async with policies() as (brokers, known, asked):
        for topic, seconds in (("a", 0), ("b", 50), ("c", 11), ("b", 0), ("d", 0), ("e", 0), ("b", 0), ("c", 0)):
            brokers.create_topic(topic)
            await known.is_compacted(topic)
            await trio.sleep(seconds)
        assert asked == ["a", "b", "c", "b", "d", "e", "c"]


async def test_partitions_that_may_not_be_written_and_why() -> None:
    async with policies() as (brokers, known, asked):
        for name in ("plain", TOPIC):
            brokers.create_topic(name)
        brokers.create_topic("c", config={"cleanup.policy": "compact"})
        places = [("plain", 0), ("c", 1), (TOPIC, 2), ("c", 3)]
        assert not any(map(known.is_known_writable, places)), "none is known yet"
        compacted = ErrorCode.POLICY_VIOLATION
        own = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await known.errors(places) == {("c", 1): compacted, (TOPIC, 2): own, ("c", 3): compacted}
        assert asked == ["plain", "c"]
        assert not await known.is_compacted(TOPIC)
        assert [known.is_known_writable(place) for place in places] == [True, False, False, False]


@pytest.mark.parametrize(
    ("change", "compacted"),
    [
        (lambda result: result.configs.insert(0, Setting(name="other", value="delete")), True),
        (lambda result: setattr(result.configs[0], "value", None), False),
        (lambda result: result.configs.clear(), False),
    ],
    ids=["another setting first", "no value", "no setting"],
)
async def test_a_broker_that_reports_more_or_less(change: Callable[[Any], object], compacted: bool) -> None:
    async with policies() as (brokers, known, _):
        brokers.create_topic("c", config={"cleanup.policy": "compact"})
        brokers.control(ApiKey.DESCRIBE_CONFIGS, lambda _: each(change))
        assert await known.is_compacted("c") is compacted


async def test_a_broker_of_the_oldest_version_is_asked() -> None:
    """A fake broker does not serve it."""

    class Old:
        def any_broker(self) -> None:
            """None is known."""

        async def ask_any(self, request: Message, kind: type[Message], versions: VersionRange) -> Message:
            version = choose_version({ApiKey.DESCRIBE_CONFIGS: (0, 0)}, request, versions)
            request.encode(version)
            setting = Setting(name="cleanup.policy", value="compact")
            answer = DescribeConfigsResponse(results=[Described(resource_name="c", configs=[setting])])
            return kind.decode(answer.encode(version), version, unbounded())

    assert await TopicPolicies(cast(Cluster, Old())).is_compacted("c")


async def test_a_broker_that_is_not_known_yet_is_asked() -> None:
    async with open_fake_cluster() as fake, connections(fake.bootstrap) as (_, pool):
        fake.cluster.create_topic("c", config={"cleanup.policy": "compact"})
        assert await TopicPolicies(pool.cluster).is_compacted("c")


async def test_a_topic_that_is_not_there_is_asked_for_again() -> None:
    async with policies() as (brokers, known, asked):
        assert not await known.is_compacted("t")
        brokers.create_topic("t", config={"cleanup.policy": "compact"})
        assert await known.is_compacted("t")
        assert asked == ["t", "t"]


async def test_a_client_without_the_right_warns_once_and_continues() -> None:
    async with policies() as (brokers, known, asked):
        brokers.control(ApiKey.DESCRIBE_CONFIGS, lambda _: saying(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        with structlog.testing.capture_logs() as lines:
            assert [await known.is_compacted(topic) for topic in ("a", "b", "a")] == [False] * 3
        assert [line["log_level"] for line in lines] == ["warning"]
        assert asked == ["a", "b"]


async def test_brokers_that_do_not_serve_it() -> None:
    async with policies() as (_, known, asked):
        (broker,) = known._cluster.map.brokers.values()
        broker.versions = {ApiKey.METADATA: (0, 12)}
        with structlog.testing.capture_logs() as lines:
            assert not await known.is_compacted("t")
        assert (len(lines), asked) == (1, [])


def _without_the_topic(response: Any) -> None:
    response.results = []


@pytest.mark.parametrize(
    "fault",
    [Close(), saying(ErrorCode.UNKNOWN_SERVER_ERROR), Edit(_without_the_topic)],
    ids=["lost", "error", "no topic"],
)
async def test_no_answer_is_an_error_that_may_pass(fault: Close | Edit) -> None:
    async with policies() as (brokers, known, _):
        brokers.create_topic("t", config={"cleanup.policy": "compact"})
        control = brokers.control(ApiKey.DESCRIBE_CONFIGS, lambda _: fault)
        with pytest.raises(TxnError) as caught:
            await known.is_compacted("t")
        assert caught.value.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        brokers.controls.remove(control)
        assert await known.is_compacted("t")


@pytest.mark.kafka
async def test_on_a_real_broker(kafka: RealKafka) -> None:
    name = f"policies-{uuid.uuid4().hex[:12]}"
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic(f"{name}-1")
        client.create_topic(f"{name}-2", config={"cleanup.policy": "compact,delete"})
    async with connections(kafka.bootstrap) as (_, pool):
        await pool.cluster.refresh()
        known = TopicPolicies(pool.cluster)
        assert [await known.is_compacted(f"{name}-{n}") for n in (1, 2, 3)] == [False, True, False]
