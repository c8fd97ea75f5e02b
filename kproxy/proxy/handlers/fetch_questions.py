"""The requests to the broker for one Fetch whose records kproxy examines: offsets, sizes, and waiting times."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchRequestFetchPartition,
    FetchRequestFetchTopic,
    FetchResponsePartitionData,
)
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.ids import Producer

#: Enough to receive an error of a partition that waits; the first batch is given whole.
_LITTLE: Final = 1
_FIRST_MAX_BYTES: Final = 3
#: The epoch of a fetch that neither has nor wants a session (KIP-227).
_NO_SESSION: Final = -1


@dataclass(slots=True)
class Part:
    """One partition of the request."""

    topic: FetchRequestFetchTopic
    #: The topic's name; empty if only its id is known.
    name: str
    asked: FetchRequestFetchPartition
    #: Everything between the client's offset and this one is hidden for good.
    position: int
    #: Where the log ended when the place was remembered: it can't end before that now, unless it is another one.
    least_end: int = -1
    #: Of what was found last: all between the client's offset and this one is decided.
    decided: int = 0
    #: Whose batch has to be decided first.
    undecided: Producer | None = None
    #: The leader epoch of the last batch that was hidden.
    leader_epoch: int = -1
    #: What to answer.
    row: FetchResponsePartitionData | None = None
    #: Something to tell at once: records, an error, another replica.
    loud: bool = False
    #: There may be records after the position, now that hidden batches were skipped.
    ahead: bool = False

    @property
    def start(self) -> int:
        return self.asked.fetch_offset


class FetchQuestions:
    """Makes the requests for one of a client's."""

    def __init__(
        self, request: FetchRequest, parts: Mapping[TopicPartition, Part], *, version: int, level: int, max_bytes: int
    ) -> None:
        """``version`` is the client's; ``level`` the isolation level and ``max_bytes`` the bound of each response."""
        self._request = request
        self._parts = parts
        self._version = version
        self._level = level
        self._max_bytes = max_bytes

    def first(self, wait_ms: int, limited: Collection[TopicPartition]) -> FetchRequest:
        """For all partitions, of ``limited`` only to receive errors; the client's own request if that says the same."""
        same = not limited and self._is_sent_unchanged()
        return self._request if same else self.ask(self._parts, wait_ms, limited)

    def ask(
        self, keys: Collection[TopicPartition], wait_ms: int, limited: Collection[TopicPartition] = ()
    ) -> FetchRequest:
        """For some partitions, from their positions on, without a session."""
        by_topic: dict[int, FetchRequestFetchTopic] = {}
        total = 0
        for key in keys:
            part = self._parts[key]
            row = part.asked.replaced(fetch_offset=part.position)
            if part.position != part.start:
                row.last_fetched_epoch = -1
            total += max(row.partition_max_bytes, 0)
            if key in limited:
                row.partition_max_bytes = _LITTLE
            by_topic.setdefault(id(part.topic), part.topic.replaced(partitions=[])).partitions.append(row)
        return self._request.replaced(
            max_wait_ms=wait_ms,
            max_bytes=self._bound(total),
            isolation_level=self._level,
            session_id=0,
            session_epoch=_NO_SESSION,
            topics=list(by_topic.values()),
            forgotten_topics_data=[],
        )

    def _bound(self, total: int) -> int:
        """The most bytes of a response, where partitions may have ``total``."""
        bound = min(total, self._max_bytes)
        if self._version < _FIRST_MAX_BYTES:
            return bound
        return self._request.max_bytes if bound == total else min(self._request.max_bytes, bound)

    def _is_sent_unchanged(self) -> bool:
        """Whether the client's own request asks for just what is to be asked for first."""
        request = self._request
        total = sum(max(part.asked.partition_max_bytes, 0) for part in self._parts.values())
        return (
            not request.session_id
            and request.session_epoch == _NO_SESSION
            and not request.forgotten_topics_data
            and request.isolation_level == self._level
            and request.max_bytes == self._bound(total)
            and all(part.position == part.start for part in self._parts.values())
        )
