"""Metadata (3), all versions: clients receive kproxy's addresses of brokers, and topics that are being created.

A broker for which kproxy has no port is left out, so that no client ever connects to a broker directly.

Until Kafka 2.8 a broker that created a topic for a Metadata request answered LEADER_NOT_AVAILABLE, and clients asked
again. Since then it answers UNKNOWN_TOPIC_OR_PARTITION (``AutoTopicCreationManager``), which some old clients (pykafka,
no-kafka) take for the last word. So kproxy asks again for them, until the topic is there.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kproxy.budget import RequestBudget
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.metadata_rows import MetadataBrokers
from kproxy.codec.topic_partition import TopicPartition
from kproxy.proxy.context import Context
from kproxy.proxy.handlers.addresses import AddressHandler, advertise
from kproxy.proxy.handlers.base import Again, Exchange, Lowered, Park
from kproxy.proxy.routing import is_own_topic

#: The first version that can say whether topics may be created for it.
_FIRST_AUTO_CREATION: Final = 4
#: The first version of Kafka 2.8: its clients know that UNKNOWN_TOPIC_OR_PARTITION may mean "not yet".
_FIRST_THAT_ASKS_AGAIN: Final = 11
#: How long a response waits for a new topic, how often kproxy asks, and how long it waits for none after one that did
#: not appear: the brokers may create none. In seconds.
_PATIENCE: Final = 1.0
_INTERVAL: Final = 0.1
_PAUSE: Final = 60.0
_REQUEST: Final = "request"
_LAST_ASKED_AT: Final = "until"
_NEXT_ASKED_AT: Final = "next"


class Metadata(AddressHandler):
    """Rewrites the list of brokers, and waits for topics that the broker creates for the request."""

    def lift(self, ctx: Context, exchange: Exchange, budget: RequestBudget) -> Message:
        """The request; where it names a topic of kproxy's, or its client may not, no topic is created for it.

        Created by the broker for a client that asks, the state topic would not be compacted.
        """
        request: Any = exchange.request
        own = any(is_own_topic(topic.name or "") for topic in request.topics or ())
        if own or (ctx.access is not None and not ctx.access.makes_topics):
            exchange.upstream_version = max(exchange.upstream_version, _FIRST_AUTO_CREATION)
            request = request.replaced(allow_auto_topic_creation=False)
        elif exchange.client_version < _FIRST_THAT_ASKS_AGAIN and request.allow_auto_topic_creation:
            exchange.notes[_REQUEST] = request
        asked: Message = request
        return asked

    def brokers_in(self, response: Any) -> Iterable[tuple[int, str, int]]:
        """All brokers of the response."""
        return [(row.node_id, row.host, row.port) for row in response.brokers]

    def read_as(self, api_key: int, exchange: Exchange) -> type[Message]:
        """Without partitions, where the response can be the broker's but for its brokers."""
        same = exchange.upstream_version == exchange.client_version
        return MetadataBrokers if same else super().read_as(api_key, exchange)

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Lowered:
        """The response with kproxy's addresses; or a wait, where a topic of it may appear at any moment."""
        if _REQUEST in exchange.notes and _lacks_a_topic(response) and _waits(ctx, exchange):
            return Park(exchange.notes[_NEXT_ASKED_AT])
        response.brokers = [row for row in response.brokers if advertise(ctx, row, row.node_id)]
        for topic in response.topics:
            ctx.cluster.learn_name(topic.topic_id, topic.name or "")
        own = (topic.topic_id for topic in response.topics if is_own_topic(topic.name or ""))
        ctx.cluster.own_topic_ids.update(topic_id for topic_id in own if any(topic_id))
        answer: Message = response
        return answer

    def resume(
        self, ctx: Context, exchange: Exchange, told: Mapping[TopicPartition, int | None], budget: RequestBudget
    ) -> Lowered:
        """The same request, when it is time."""
        at: float = exchange.notes[_NEXT_ASKED_AT]
        return Park(at) if ctx.now < at else Again(exchange.notes[_REQUEST])


def _lacks_a_topic(response: Any) -> bool:
    return any(topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in response.topics)


def _waits(ctx: Context, exchange: Exchange) -> bool:
    """Whether the response waits for a new topic, until ``_NEXT_ASKED_AT`` for now.

    Not where other responses of the connection would have to wait as well.
    """
    if ctx.pipelines or ctx.now < ctx.cluster.creates_no_topic_until:
        return False
    if ctx.now >= exchange.notes.setdefault(_LAST_ASKED_AT, ctx.now + _PATIENCE):
        ctx.cluster.creates_no_topic_until = ctx.now + _PAUSE
        return False
    exchange.notes[_NEXT_ASKED_AT] = ctx.now + _INTERVAL
    return True
