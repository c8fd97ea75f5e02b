"""The names of topics that clients name by ids; transactions know topics by their names."""

from collections.abc import Collection, Mapping

from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import TopicRef
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.txn.txn_error import TxnError


async def topic_names(cluster: Cluster, ids: Collection[bytes]) -> Mapping[TopicRef, str]:
    """The names of the topics that exist, by id; no topic has the id 0. TxnError."""
    asked = [topic_id for topic_id in ids if any(topic_id)]
    try:
        return await cluster.metadata.names(asked) if asked else {}
    except (OSError, RemoteProtocolError) as error:
        raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
