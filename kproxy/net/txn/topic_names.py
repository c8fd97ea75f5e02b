"""The names of topics that clients name by their ids (KIP-516)."""

from collections.abc import Iterable

from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.net.brokers.cluster import Cluster

#: The first Metadata version that takes ids.
_BY_ID = 10
_NEWEST = 12


async def topic_names(cluster: Cluster, ids: Iterable[bytes]) -> dict[bytes, str]:
    """The names of those topics that there are. OSError, RemoteProtocolError: no broker tells."""
    known = cluster.map.topic_names
    unknown = [topic_id for topic_id in dict.fromkeys(ids) if topic_id not in known]
    found = {topic_id: known[topic_id] for topic_id in ids if topic_id in known}
    if unknown:
        topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in unknown]
        response = await cluster.ask_any(MetadataRequest(topics=topics), MetadataResponse, (_BY_ID, _NEWEST))
        for topic in response.topics:
            if topic.name and not topic.error_code:
                found[topic.topic_id] = topic.name
                cluster.map.learn_name(topic.topic_id, topic.name)
    return found
