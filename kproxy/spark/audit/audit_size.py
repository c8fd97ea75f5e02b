"""How much an audit has to read, asked before it begins, and which engine reads it."""

import os
from typing import Final

from kproxy.spark.audit.audit_state import load_state
from kproxy.spark.audit.content import plain_key
from kproxy.spark.audit.offset_spans import connector, find_spans, log_slices
from kproxy.spark.audit.request import AUTO, DUCKDB, SPARK, Request, choose_topics, wrong

#: Up to so many offsets are read by this process.
MOST_HERE: Final = 10_000_000


def choose_engine(request: Request) -> str:
    """``duckdb`` or ``spark``: what was asked for, else DuckDB for what this process can do by itself.

    StartupError if DuckDB can't do what is asked, or if a topic does not exist; KafkaError as it comes.
    """
    is_plain = request.key is None or plain_key(request.key) is not None
    if request.engine == DUCKDB and not is_plain:
        valid = "valid without Spark: key, value, string(key), string(value)"
        raise wrong(f"--key {request.key!r} needs --engine {SPARK}; {valid}")
    if request.engine != AUTO:
        return request.engine
    wants_spark = bool(request.master or request.conf or "PYSPARK_GATEWAY_PORT" in os.environ)
    return SPARK if wants_spark or not is_plain or offsets_to_read(request) > MOST_HERE else DUCKDB


def offsets_to_read(request: Request) -> int:
    """Of the topics and of the transaction log. StartupError if a topic does not exist; KafkaError as it comes."""
    state = None if request.fresh else load_state(request.out)
    with connector(request.where())() as cluster, connector(request.where_log())() as brokers:
        topics = choose_topics(request.topics, cluster.topics())
        spans = find_spans(cluster, topics, request.since, state, with_stable=False)
        return sum(each.end - each.reread for each in spans) + sum(
            each.end - each.start for each in log_slices(brokers)
        )
