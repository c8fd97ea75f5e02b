"""One audit from its offsets to its report: read, judge, write, and leave the next run its beginning.

All data stay in Spark: what comes to the driver are offsets of partitions, counts, and the rows of a page. Of a small
run the driver reads all, and writes the tables.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Final, NamedTuple

from pyarrow import parquet
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kproxy.spark.audit import exposure
from kproxy.spark.audit.audit_state import State, load_state, save_state, write_whole
from kproxy.spark.audit.catalogue import FINDINGS, Finding
from kproxy.spark.audit.content import digest
from kproxy.spark.audit.group_checks import fetched_offsets
from kproxy.spark.audit.log_facts import decoded_log, log_facts
from kproxy.spark.audit.log_reading import Slice, are_few, connector, log_slices, read_batches, read_log, read_records
from kproxy.spark.audit.next_run import CARRIED_TABLE, carried, carry, local, next_places
from kproxy.spark.audit.offset_spans import Span, find_spans
from kproxy.spark.audit.picture import png_page
from kproxy.spark.audit.report_page import html_page
from kproxy.spark.audit.request import Request, choose_topics
from kproxy.spark.audit.summary import Bucket, Cell, Outcome, Row, Summary, plain
from kproxy.spark.audit.tables import SPANS, Limits, Tables

WORST: Final = 50
_BUCKETS: Final = 60
_FEWEST_BUCKETS: Final = 13
#: Of what several findings look at: in memory as far as it goes.
_STORED: Final = StorageLevel.MEMORY_AND_DISK
_UNREADABLE: Final = "fact = 'unreadable'"
_STEPS_BEYOND_FINDINGS: Final = 3

Tell = Callable[[str], None]


class _Run(NamedTuple):
    """What a run is made of."""

    name: str
    began: datetime
    directory: Path
    state: State | None
    spans: Sequence[Span]
    cluster: str
    topics: Sequence[str]
    tables: Tables
    log: DataFrame
    #: Whether the driver reads the log by itself, and all of the topics, too.
    is_short: bool
    is_small: bool
    #: Whether the transaction log can be read: else this run judges nothing, and the next one begins where it did.
    is_readable: bool


def steps(request: Request) -> int:
    """How often ``audit`` calls ``tell``."""
    return len(_asked(request)) + _STEPS_BEYOND_FINDINGS


def audit(spark: SparkSession, request: Request, tell: Tell) -> tuple[Summary, Path]:
    """Runs an audit; its summary, and the directory with its tables and reports.

    ``tell`` is called for each step that begins. Raises StartupError if the request can't be met, KafkaError or
    OptionError if kproxy can't be read, OSError if the directory can't be written. Before the end nothing of a run is
    seen there.
    """
    tell("transaction log")
    run = _begin(spark, request)
    try:
        summary = _judge(run, request, tell)
        tell("report")
        return summary, _finish(run, request, summary)
    finally:
        for frame in (run.tables.batches, run.tables.records, run.tables.facts, run.log):
            frame.unpersist()
        shutil.rmtree(run.directory, ignore_errors=True)


def _asked(request: Request) -> list[Finding]:
    return [each for each in FINDINGS if each.name != "duplicate_keys" or request.key is not None]


# -- reading


def _begin(spark: SparkSession, request: Request) -> _Run:
    began = datetime.now(UTC)
    name = began.strftime("%Y%m%dT%H%M%S.%fZ")
    state = None if request.fresh else load_state(request.out)
    where, log_from = request.where(), request.where_log()
    open_cluster = connector(where)
    with open_cluster() as cluster, connector(log_from)() as brokers:
        topics = choose_topics(request.topics, cluster.topics())
        cluster_name = ", ".join(filter(None, (request.bootstrap, cluster.cluster_id)))
        slices = log_slices(brokers)
    # kept before anything is made of them: plans that exist already would read them again
    log = read_log(spark, log_from, slices).persist(_STORED)
    is_short = are_few(slices)
    facts = log_facts(log, {each.partition: each.start for each in slices}, few=is_short).persist(_STORED)
    # the log is read before the groups are asked: a group that continues meanwhile has no lag
    is_readable = facts.where(_UNREADABLE).count() == 0
    with open_cluster() as cluster:
        spans = find_spans(cluster, topics, request.since, state) if is_readable else []
    # with a log that can't be read kproxy cannot say what is committed, and so nothing else can be judged
    told = facts if is_readable else facts.where(_UNREADABLE)
    limits = Limits(
        int(began.timestamp() * 1000), request.window_ms, request.open_ms, request.prepared_ms, request.run_length
    )
    is_small = is_short and are_few([Slice(span.topic, span.partition, span.reread, span.end) for span in spans])
    tables = Tables(
        batches=read_batches(spark, where, spans).persist(_STORED),
        records=digest(read_records(spark, where, spans), request.key).persist(_STORED),
        spans=spark.createDataFrame(list(spans), SPANS),
        carried=carried(spark, request.out, state),
        facts=told,
        fetched=fetched_offsets(told, topics, open_cluster, few=is_short),
        limits=limits,
    )
    directory = request.out / f".run={name}"
    directory.mkdir(parents=True)
    return _Run(
        name, began, directory, state, spans, cluster_name, topics, tables, log, is_short, is_small, is_readable
    )


# -- judging


def _judge(run: _Run, request: Request, tell: Tell) -> Summary:
    tables = run.tables
    asked = _asked(request)
    outcomes = []
    for finding in asked:
        tell(finding.title)
        outcomes.append(_outcome(run, finding))
    repeats = [each for each, outcome in zip(asked, outcomes, strict=True) if each.repeated and outcome.count]
    tell("tables")
    visibility = _stored(run, "visibility", exposure.visibility(tables))
    protection = _stored(run, "protection", exposure.protection(tables))
    stable = _stored(run, "stable_offsets", exposure.stable_offsets(tables))
    _stored(run, "transaction_log", decoded_log(run.log, few=run.is_short))
    largest = (
        visibility.groupBy("topic").agg(F.sum("bytes").alias("all_bytes")).orderBy(F.desc("all_bytes")).limit(WORST)
    )
    totals, oldest, newest = _totals(run, visibility)
    return Summary(
        run=run.name,
        former_run=run.state.run if run.state is not None else None,
        at=run.began.strftime("%Y-%m-%d %H:%M:%S"),
        cluster=run.cluster,
        topics=run.topics,
        options=request.options(),
        oldest=oldest,
        newest=newest,
        outcomes=outcomes,
        totals=totals,
        visibility=_rows(visibility.join(F.broadcast(largest), "topic"), "all_bytes", WORST * 4),
        protection=_rows(protection, "bytes"),
        stable_offsets=_rows(stable, "records_above"),
        repeated_over_time=_over_time(run, repeats),
        not_looked_at=[each.name for each in FINDINGS if each not in asked],
    )


def _stored(run: _Run, name: str, frame: DataFrame) -> DataFrame:
    """The frame, computed once: from its table from now on."""
    directory = run.directory / name
    if run.is_small:
        rows = frame.toArrow()
        directory.mkdir()
        parquet.write_table(rows, directory / "part-0.parquet")
        return frame.sparkSession.createDataFrame(rows, frame.schema)
    frame.write.parquet(local(directory))
    return frame.sparkSession.read.schema(frame.schema).parquet(local(directory))


def _outcome(run: _Run, finding: Finding) -> Outcome:
    table = _stored(run, finding.name, finding.build(run.tables))
    count = table.count()
    worst = _rows(table, finding.worst) if count else []
    return Outcome(finding.name, finding.title, finding.severity, finding.meaning, finding.remedy, count, worst)


def _rows(table: DataFrame, worst: str, most: int = WORST) -> list[Row]:
    rows = table.orderBy(F.desc_nulls_last(worst)).limit(most).toArrow().to_pylist()
    return [plain(row) for row in rows]


def _totals(run: _Run, visibility: DataFrame) -> tuple[dict[str, int], Cell, Cell]:
    """Sums of all that was judged, and the oldest and the newest timestamp of it."""
    names = ("batches", "records", "bytes")
    ends = (F.min("oldest").alias("oldest"), F.max("newest").alias("newest"))
    (row,) = visibility.agg(*(F.sum(name).alias(name) for name in names), *ends).toArrow().to_pylist()
    sums = {name: int(row[name] or 0) for name in names}
    times = plain({"oldest": row["oldest"], "newest": row["newest"]})
    return {**sums, "topics": len(run.topics), "partitions": len(run.spans)}, times["oldest"], times["newest"]


def _over_time(run: _Run, findings: Sequence[Finding]) -> list[Bucket]:
    """Repeated records in at most 60 stretches of time of one length; one that several findings name counts once."""
    spark = run.tables.spans.sparkSession
    parts = [
        each.repeated(run.tables, spark.read.parquet(local(run.directory / each.name)))
        for each in findings
        if each.repeated is not None
    ]
    if not parts:
        return []
    rows = reduce(DataFrame.union, parts).distinct().select(F.unix_seconds("timestamp").alias("at"))
    ends = rows.agg(F.min("at").alias("first"), F.max("at").alias("last")).first()
    if ends is None or ends["first"] is None:
        return []
    first, width = int(ends["first"]), max(1, -(-(int(ends["last"]) - int(ends["first"]) + 1) // _BUCKETS))
    number = F.floor((F.col("at") - first) / width).alias("number")
    counted = {row["number"]: int(row["count"]) for row in rows.groupBy(number).count().collect()}
    begin = datetime.fromtimestamp(first, UTC)
    last = max(counted)
    # a burst is drawn with time around it
    around = max(0, _FEWEST_BUCKETS - last - 1) // 2
    return [
        Bucket((begin + timedelta(seconds=index * width)).strftime("%Y-%m-%d %H:%M:%S"), counted.get(index, 0))
        for index in range(-around, last + around + 1)
    ]


# -- leaving


def _finish(run: _Run, request: Request, summary: Summary) -> Path:
    """Tables, reports, the next run's beginning, in this order: a run that breaks off leaves nothing to be believed."""
    _stored(run, CARRIED_TABLE, carry(run.tables, int(run.began.timestamp() * 1000) - request.carry_ms))
    document = json.dumps(summary.as_json(), indent=2)
    write_whole(run.directory / "summary.json", document.encode())
    write_whole(run.directory / "report.html", html_page(summary).encode())
    write_whole(run.directory / "report.png", png_page(summary))
    done = request.out / f"run={run.name}"
    run.directory.rename(done)
    if run.is_readable:
        save_state(request.out, State(run.name, next_places(run.tables, run.spans, run.state)))
    return done
