"""A session under a script: requests in, what goes to the broker and to the client out. No sockets, no clock."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kproxy.budget import unbounded
from kproxy.codec.batch import Record, build_batch, read_header
from kproxy.codec.header import decode_request_header, encode_request, encode_response, response_header_size
from kproxy.codec.messages import ApiKey, Message, request_class, response_class
from kproxy.dedup.lanes import Lane
from kproxy.dedup.producer_ids import KPROXY_BIT
from kproxy.proxy.commands import AskCoordinator, Blocking
from kproxy.proxy.context import Client, Context, Policy, Services
from kproxy.proxy.coordinator_rules import HomeRule
from kproxy.proxy.routing import Address, Broker, ClusterMap
from kproxy.proxy.session import Session
from kproxy.proxy.stats import Stats
from tests.dedup.wires import member

PID = 4000 | KPROXY_BIT

#: What Kafka 4.4.0 advertises.
KAFKA_44: Mapping[int, tuple[int, int]] = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
    ApiKey.API_VERSIONS: (0, 5),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.DELETE_GROUPS: (0, 3),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.SHARE_FETCH: (1, 2),
}


def cluster_map() -> ClusterMap:
    """Two brokers, 1 at h1:9091 and 2 at h2:9092, with ports 1001 and 1002 of kproxy."""
    brokers = {n: Broker(n, Address(f"h{n}", 9090 + n), 1000 + n) for n in (1, 2)}
    return ClusterMap(brokers, set(brokers))


def context(served: Mapping[int, tuple[int, int]] = KAFKA_44, transcode: Mapping[int, int] | None = None) -> Context:
    """What a handler may know, for a client that reached kproxy at ``proxy``."""
    client = Client(local_host="proxy")
    return Context(Services(cluster_map()), client=client, transcode=transcode or {}, broker_versions=served)


def configure(ctx: Context, **chosen: Any) -> None:
    """Sets fields of the context's policy, services or client."""
    for name, value in chosen.items():
        part = next(each for each in ("policy", "services", "client") if hasattr(getattr(ctx, each), name))
        setattr(ctx, part, replace(getattr(ctx, part), **{name: value}))
    ctx.share.limits = ctx.policy


class Play:
    """One session, connected, with a lane; correlation ids count from 1."""

    def __init__(
        self,
        *,
        served: Mapping[int, tuple[int, int]] = KAFKA_44,
        idempotence: bool = True,
        transcode: Mapping[str, Mapping[int, int]] | None = None,
        held_bytes: int = 1 << 20,
        client_id: str | None = "me",
        homes: Sequence[HomeRule] | None = None,
        software: str = "",
    ) -> None:
        """``software`` is what the client has called itself (KIP-511)."""
        self.stats = Stats()
        chosen = transcode or {}
        ctx = context(served)
        ctx.policy = Policy(
            held_bytes=held_bytes, idempotence=idempotence, transcode=lambda name: chosen.get(name, {}), homes=homes
        )
        ctx.know(connection=7, software=software)
        ctx.share.limits = ctx.policy
        self.session = Session(ctx, self.stats)
        #: The inside of the session.
        self.ctx, self.link, self.gate = ctx, self.session._link, self.session._gate
        self.session.connected(served, -1)
        self.session.join(member())
        self.session.lease(Lane(PID))
        self.client_id = client_id
        self.correlation_id = 0
        #: When requests and answers come, in seconds.
        self.asked_at, self.answered_at = 1.0, 2.0
        self._asked: dict[int, tuple[int, int]] = {}

    def frame(self, message: Message, version: int) -> bytearray:
        """A client's request."""
        self.correlation_id += 1
        self._asked[self.correlation_id] = (message.API_KEY, version)
        return bytearray(encode_request(message, version, self.correlation_id, self.client_id))

    def ask(self, message: Message, version: int) -> Blocking | None:
        """Hand in a client's request; what it waits for."""
        self.session.read_all(self.asked_at)
        waiting = self.session.request(self.frame(message, version), self.asked_at)
        return None if waiting is None else waiting.command

    def upstream(self) -> list[tuple[int, int, Any]]:
        """What went to the broker since this was last asked: version, correlation id, request."""
        sent = []
        for data in self.session.to_upstream:
            frame = bytes(data)[4:]
            header = decode_request_header(frame)
            request = request_class(header.api_key).decode(frame, header.api_version, unbounded(), header.size)
            sent.append((header.api_version, header.correlation_id, request))
        self.session.to_upstream.clear()
        return sent

    def sent(self) -> tuple[int, int, Any]:
        """The one request that went to the broker."""
        (only,) = self.upstream()
        return only

    def reply(self, message: Message, version: int, correlation_id: int) -> list[tuple[int, Address]]:
        """Hand in a broker's response."""
        frame = bytearray(encode_response(message, version, correlation_id))
        return self.session.response(frame, self.answered_at)

    def commands(self) -> list[Any]:
        """What the shell was to do since this was last asked."""
        commands = self.session.commands[:]
        self.session.commands.clear()
        return commands

    def coordinator_call(self) -> AskCoordinator:
        """The one coordinator call that the session has for the shell."""
        (only,) = self.commands()
        assert isinstance(only, AskCoordinator)
        return only

    def answers(self) -> list[Any]:
        """What went to the client since this was last asked, decoded at the versions it asked in."""
        answers = []
        data = b"".join(bytes(piece) for piece in self.session.to_client)
        self.session.to_client.clear()
        while data:
            size = int.from_bytes(data[:4], "big")
            frame, data = data[4 : 4 + size], data[4 + size :]
            key, version = self._asked[int.from_bytes(frame[:4], "big")]
            answers.append(
                response_class(key).decode(frame, version, unbounded(), response_header_size(key, version, frame))
            )
        return answers

    def answer(self) -> Any:
        """The one response that went to the client."""
        (only,) = self.answers()
        return only


def batch(*values: bytes, **more: Any) -> bytes:
    """A batch of format v2."""
    return bytes(build_batch([Record(n, 1_700_000_000_000, None, value, ()) for n, value in enumerate(values)], **more))


def stamps(request: Any) -> list[tuple[int, int, int]]:
    """Producer id, epoch and sequence of each batch of a Produce request."""
    headers = [read_header(part.records) for topic in request.topic_data for part in topic.partition_data]
    return [(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers]
