"""Rules of acl.file in front of a fake cluster: what reaches it, what clients receive, and the log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kproxy.codec._generated.fetch import FetchRequest
from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateRequest
from kproxy.codec._generated.sasl_handshake import SaslHandshakeRequest
from kproxy.codec.messages import ErrorCode
from kproxy.config import StartupError
from kproxy.net.client_login.credential_file import write_credentials
from tests.net.harness import FrameClient, Proxied, errors_of, fetch, metadata, produce, proxied, values_in
from tests.proxy.client_login.users import PASSWORD, USERS

TOPIC = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
GROUP = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
WRITES = """rules:
  - permission: allow
    principals: ["User:ANONYMOUS"]
    hosts: [localhost]
    client.ids: [test]
    operations: [Write, Create]
    topics: [open]
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "acl.yaml"
    file.write_text(WRITES)
    return file


@asynccontextmanager
async def guarded(rules: Path) -> AsyncIterator[Proxied]:
    """The shell with these rules in front of a cluster with a topic ``open``."""
    async with proxied(acl_file=rules) as proxy:
        proxy.brokers.create_topic("open", 1)
        yield proxy


def both(first: Any, second: Any) -> Any:
    """One Produce or Fetch request of two."""
    name = "topics" if isinstance(first, FetchRequest) else "topic_data"
    getattr(first, name).extend(getattr(second, name))
    return first


async def reload(proxy: Proxied, file: Path, text: str) -> bool:
    await trio.Path(file).write_text(text)
    assert proxy.server.authorization is not None
    return await proxy.server.authorization.file.reload()


async def test_what_may_be_written_is_and_the_rest_is_refused(rules: Path) -> None:
    async with guarded(rules) as proxy, await proxy.client(1) as client:
        for version in (3, 9):
            answer = await client.call(both(produce("open", b"a"), produce("closed", b"b")), version)
            assert {topic.name: topic.partition_responses[0].error_code for topic in answer.responses} == {
                "open": 0,
                "closed": TOPIC,
            }
        assert errors_of(await client.call(produce("closed", b"c"), 3)) == [TOPIC]
        assert values_in(proxy.brokers, "open") == [b"a", b"a"]
        assert "closed" not in proxy.brokers.topics
        assert proxy.stats.refused.authorization_refusals == {("Write", "Topic"): 3}


async def test_another_client_id_is_another_subject(rules: Path) -> None:
    async with guarded(rules) as proxy, await proxy.client(1, client_id="other") as client:
        assert errors_of(await client.call(produce("open", b"a"), 3)) == [TOPIC]
        client.client_id = "test"
        assert errors_of(await client.call(produce("open", b"a"), 3)) == [0]


async def test_new_rules_hold_for_the_next_request_of_a_client_that_sends_many_alike(rules: Path) -> None:
    async with guarded(rules) as proxy, await proxy.client(1) as client:
        for _ in range(3):
            assert errors_of(await client.call(produce("open", b"a"), 3)) == [0]
        assert await reload(proxy, rules, "rules: []")
        assert errors_of(await client.call(produce("open", b"b"), 3)) == [TOPIC]
        assert await reload(proxy, rules, WRITES)
        assert errors_of(await client.call(produce("open", b"c"), 3)) == [0]
        assert values_in(proxy.brokers, "open") == [b"a", b"a", b"a", b"c"]


async def test_a_broken_file_leaves_the_rules_in_force_and_is_reported(rules: Path) -> None:
    async with guarded(rules) as proxy, await proxy.client(1) as client:
        with capture_logs() as lines:
            assert not await reload(proxy, rules, "rules: [{permission: alow}]")
            await trio.Path(rules).unlink()
            assert proxy.server.authorization is not None
            assert not await proxy.server.authorization.file.reload()
        assert errors_of(await client.call(produce("open", b"a"), 3)) == [0]
        told = [line for line in lines if line["event"] == "file cannot be used; keeping the old content"]
        assert [line["option"] for line in told] == ["acl.file", "acl.file"]
        assert "did you mean 'allow'?" in str(told[0]["problems"])


async def test_a_refusal_is_logged_once_with_all_that_was_asked(rules: Path) -> None:
    async with guarded(rules) as proxy, await proxy.client(1) as client:
        with capture_logs() as lines:
            for _ in range(5):
                await client.call(produce("closed", b"a"), 3)
        (line,) = [line for line in lines if line["event"] == "refused"]
        assert line == {
            "event": "refused",
            "log_level": "info",
            "principal": "User:ANONYMOUS",
            "host": "127.0.0.1",
            "client_id": "test",
            "api": "Produce",
            "operation": "Write",
            "resource_type": "Topic",
            "resource_name": "closed",
            "rule": "no rule allows it",
            "suppressed": 0,
        }
        assert proxy.stats.refused.authorization_refusals == {("Write", "Topic"): 5}


async def test_a_producer_that_wants_no_answer_is_disconnected(rules: Path) -> None:
    async with guarded(rules) as proxy, await proxy.client(1) as client:
        await client.stream.send_all(client.encode(produce("closed", b"a", acks=0), 3, silent=True))
        assert await client.ended()


async def test_reading_continues_where_it_is_allowed_and_without_sessions(rules: Path) -> None:
    await trio.Path(rules).write_text(WRITES.replace("[Write, Create]", "[Write, Create, Read]"))
    async with guarded(rules) as proxy, await proxy.client(1) as client:
        await client.call(produce("open", b"x" * 100_000), 3)
        answer = await client.call(both(fetch("open", session_epoch=0), fetch("closed")), 11)
        assert answer.session_id == 0
        rows = {topic.topic: topic.partitions[0] for topic in answer.responses}
        assert rows["closed"].error_code == TOPIC
        assert len(rows["open"].records) > 100_000
        answer = await client.call(fetch("open", session_id=99, session_epoch=1), 11)
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        answer = await client.call(fetch("open"), 4)
        assert len(answer.responses[0].partitions[0].records) > 100_000


async def test_topics_that_may_not_be_described_are_not_there(rules: Path) -> None:
    async with guarded(rules) as proxy, await proxy.client() as client:
        proxy.brokers.create_topic("closed", 1)
        answer = await client.call(metadata("open", "closed"), 4)
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [("open", 0), ("closed", TOPIC)]
        everything = metadata()
        everything.topics = None
        answer = await client.call(everything, 4)
        assert [topic.name for topic in answer.topics] == ["open"]
        assert answer.brokers


@pytest.mark.parametrize("version", [1, 4])
async def test_no_topic_is_made_for_who_may_not(rules: Path, version: int) -> None:
    async with guarded(rules) as proxy, await proxy.client() as client:
        assert await reload(proxy, rules, WRITES.replace("[Write, Create]", "Write").replace("open", "other"))
        answer = await client.call(metadata("other"), version)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "other" not in proxy.brokers.topics
        assert await reload(proxy, rules, WRITES.replace("open", "other"))
        await client.call(metadata("other"), version)
        assert "other" in proxy.brokers.topics


async def test_offsets_of_version_0_are_refused_before_any_coordinator_is_asked(rules: Path) -> None:
    topic = OffsetCommitRequestTopic(name="open", partitions=[OffsetCommitRequestPartition(0, 7)])
    async with guarded(rules) as proxy, await proxy.client(1) as client:
        answer = await client.call(OffsetCommitRequest("g", topics=[topic]), 0)
        assert answer.topics[0].partitions[0].error_code == GROUP


async def test_a_file_that_cannot_be_used_at_the_start_is_an_error(rules: Path) -> None:
    await trio.Path(rules).write_text("rulez: 1")
    with pytest.RaisesGroup(StartupError, allow_unwrapped=True, flatten_subgroups=True):
        async with proxied(acl_file=rules):
            raise AssertionError("it began")


async def test_rules_and_quotas_are_for_who_has_logged_in(rules: Path, tmp_path: Path) -> None:
    write_credentials(tmp_path / "users", USERS)
    await trio.Path(rules).write_text(WRITES.replace("User:ANONYMOUS", "User:alice"))
    quotas = tmp_path / "quotas.yaml"
    await trio.Path(quotas).write_text("quotas: [{principal: 'User:alice', connections: 1}]")
    login = {"sasl_enabled_mechanisms": ("PLAIN",), "sasl_credentials_location": tmp_path / "users"}
    async with proxied(acl_file=rules, quotas_file=quotas, **login) as proxy, await proxy.client(1) as client:
        proxy.brokers.create_topic("open", 1)
        await log_in(client)
        assert errors_of(await client.call(produce("open", b"a"), 3)) == [0]
        assert errors_of(await client.call(produce("closed", b"a"), 3)) == [TOPIC]
        async with await proxy.client(1) as second:
            await log_in(second)
            await second.send(metadata("open"), 4)
            assert await second.ended()
        assert proxy.stats.refused.refusals == {"quota": 1}


async def log_in(client: FrameClient) -> None:
    assert (await client.call(SaslHandshakeRequest("PLAIN"), 1)).error_code == 0
    answer = await client.call(SaslAuthenticateRequest(f"\0alice\0{PASSWORD}".encode()), 2)
    assert answer.error_code == 0
