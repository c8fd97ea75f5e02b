"""Which topics are compacted."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog
import trio

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn import topic_policies
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

    def change(response: object) -> None:
        for result in response.results:  # type: ignore[attr-defined]
            result.error_code, result.configs = error, []

    return Edit(change)


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


@pytest.mark.parametrize("fault", [Close(), saying(ErrorCode.UNKNOWN_SERVER_ERROR)])
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
