"""How much an audit has to read, asked before Spark starts: a small one runs with settings that start quickly."""

from typing import Final

from kproxy.spark.audit.audit_state import load_state
from kproxy.spark.audit.log_reading import connector, log_slices
from kproxy.spark.audit.offset_spans import find_spans
from kproxy.spark.audit.request import Request, choose_topics

#: Up to so many offsets Spark spends more time on compiling its plans than on the records.
SMALL_OFFSETS: Final = 1_000_000


def offsets_to_read(request: Request) -> int:
    """Of the topics and of the transaction log. StartupError if a topic does not exist; KafkaError as it comes."""
    state = None if request.fresh else load_state(request.out)
    with connector(request.where())() as cluster, connector(request.where_log())() as brokers:
        topics = choose_topics(request.topics, cluster.topics())
        spans = find_spans(cluster, topics, request.since, state, with_stable=False)
        return sum(each.end - each.reread for each in spans) + sum(
            each.end - each.start for each in log_slices(brokers)
        )
