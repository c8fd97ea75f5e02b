"""One audit from its offsets to its report: read, judge, write, and leave the next run its beginning.

All data stay in the engine: what comes here are offsets of partitions, counts, and the rows of a page.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from kproxy.spark.audit import exposure
from kproxy.spark.audit.audit_state import State, load_state, save_state, write_whole
from kproxy.spark.audit.catalogue import FINDINGS, Finding
from kproxy.spark.audit.content import digest
from kproxy.spark.audit.engine import ARRIVING, Engine, stored
from kproxy.spark.audit.group_checks import fetch_offsets
from kproxy.spark.audit.log_facts import make_decoded, make_facts
from kproxy.spark.audit.next_run import CARRIED_TABLE, carry, load_carried, next_places
from kproxy.spark.audit.offset_spans import (
    AS_BATCHES,
    AS_SEEN,
    AS_WRITTEN,
    Span,
    batch_slices,
    connector,
    find_spans,
    log_slices,
    record_slices,
)
from kproxy.spark.audit.picture import png_page
from kproxy.spark.audit.report_page import html_page
from kproxy.spark.audit.request import Request, choose_topics
from kproxy.spark.audit.sequences import NUMBERED
from kproxy.spark.audit.summary import AuditOutcome, Bucket, Cell, Row, Summary, plain
from kproxy.spark.audit.tables import BATCHES, JUDGED, PLAIN, SPANS, Limits, table

WORST: Final = 50
_BUCKETS: Final = 60
_FEWEST_BUCKETS: Final = 13
_STEPS_BEYOND_FINDINGS: Final = 3

Tell = Callable[[str], None]


class _Run(NamedTuple):
    """What a run is made of."""

    engine: Engine
    name: str
    began: datetime
    directory: Path
    state: State | None
    spans: Sequence[Span]
    cluster: str
    topics: Sequence[str]
    limits: Limits
    #: Whether the transaction log can be read: else this run judges nothing, and the next one begins where it did.
    is_readable: bool


def steps(request: Request) -> int:
    """How often ``audit`` calls ``tell``."""
    return len(_asked(request)) + _STEPS_BEYOND_FINDINGS


def audit(engine: Engine, request: Request, tell: Tell) -> tuple[Summary, Path]:
    """Runs an audit; its summary, and the directory with its tables and reports.

    ``tell`` is called for each step that begins. Raises StartupError if the request can't be met, KafkaError or
    OptionError if kproxy can't be read, OSError if the directory can't be written. Before the end nothing of a run is
    seen there.
    """
    tell("transaction log")
    run = _begin(engine, request)
    try:
        summary = _judge(run, request, tell)
        tell("report")
        return summary, _finish(run, request, summary)
    finally:
        shutil.rmtree(run.directory, ignore_errors=True)


def define_views(engine: Engine) -> None:
    """The views that several rules share, when those they are made of are there."""
    engine.define("audit_judged", JUDGED)
    engine.define("audit_numbered", NUMBERED)


def _asked(request: Request) -> list[Finding]:
    return [each for each in FINDINGS if each.name != "duplicate_keys" or request.key is not None]


# -- reading


def _begin(engine: Engine, request: Request) -> _Run:
    began = datetime.now(UTC)
    name = began.strftime("%Y%m%dT%H%M%S.%fZ")
    state = None if request.fresh else load_state(request.out)
    where, log_from = request.where(), request.where_log()
    open_cluster = connector(where)
    with open_cluster() as cluster, connector(log_from)() as brokers:
        topics = choose_topics(request.topics, cluster.topics())
        cluster_name = ", ".join(filter(None, (request.bootstrap, cluster.cluster_id)))
        slices = log_slices(brokers)
    engine.read("audit_log", {**log_from, **AS_WRITTEN}, slices, PLAIN, f"select * from {ARRIVING}")
    make_facts(engine, {each.partition: each.start for each in slices})
    # the log is read before the groups are asked: a group that continues meanwhile has no lag
    is_readable = not engine.rows("select 1 as one from audit_facts where fact = 'unreadable' limit 1")
    with open_cluster() as cluster:
        # with a log that can't be read kproxy cannot say what is committed, and so nothing else can be judged
        spans = find_spans(cluster, topics, request.since, state) if is_readable else []
    engine.put("audit_spans", table(SPANS, spans))
    engine.read("audit_batches", {**where, **AS_BATCHES}, batch_slices(spans), BATCHES, f"select * from {ARRIVING}")
    engine.read("audit_records", {**where, **AS_SEEN}, record_slices(spans), PLAIN, digest(request.key))
    load_carried(engine, request.out, state)
    fetch_offsets(engine, open_cluster)
    define_views(engine)
    limits = Limits(
        int(began.timestamp() * 1000), request.window_ms, request.open_ms, request.prepared_ms, request.run_length
    )
    directory = request.out / f".run={name}"
    directory.mkdir(parents=True)
    return _Run(engine, name, began, directory, state, spans, cluster_name, topics, limits, is_readable)


# -- judging


def _judge(run: _Run, request: Request, tell: Tell) -> Summary:
    asked = _asked(request)
    outcomes = []
    for finding in asked:
        tell(finding.title)
        outcomes.append(_outcome(run, finding))
    repeats = [each for each, outcome in zip(asked, outcomes, strict=True) if each.repeated and outcome.count]
    tell("tables")
    visibility = _stored(run, "visibility", exposure.visibility())
    protection = _stored(run, "protection", exposure.protection())
    stable = _stored(run, "stable_offsets", exposure.stable_offsets())
    make_decoded(run.engine)
    _stored(run, "transaction_log", "select * from audit_decoded")
    largest = f"""
        select *, cast(sum(bytes) over (partition by topic) as bigint) as all_bytes from {visibility}
        where topic in (select topic from {visibility} group by topic order by sum(bytes) desc limit {WORST})"""
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
        visibility=_rows(run, largest, "all_bytes", "topic, visibility", WORST * 4),
        protection=_rows(run, f"select * from {protection}", "bytes", "topic"),
        stable_offsets=_rows(run, f"select * from {stable}", "records_above", "topic, partition"),
        repeated_over_time=_over_time(run, repeats),
        not_looked_at=[each.name for each in FINDINGS if each not in asked],
    )


def _stored(run: _Run, name: str, sql: str) -> str:
    return run.engine.store(name, sql, run.directory / name)


def _outcome(run: _Run, finding: Finding) -> AuditOutcome:
    view = _stored(run, finding.name, finding.build(run.limits))
    count = int(run.engine.rows(f"select count(*) as found from {view}")[0]["found"])
    worst = _rows(run, f"select * from {view}", finding.worst, finding.then) if count else []
    return AuditOutcome(finding.name, finding.title, finding.severity, finding.meaning, finding.remedy, count, worst)


def _rows(run: _Run, sql: str, worst: str, then: str, most: int = WORST) -> list[Row]:
    found = run.engine.rows(f"select * from ({sql}) f order by {worst} desc nulls last, {then} limit {most}")
    return [plain(row) for row in found]


def _totals(run: _Run, visibility: str) -> tuple[dict[str, int], Cell, Cell]:
    """Sums of all that was judged, and the oldest and the newest timestamp of it."""
    names = ("batches", "records", "bytes")
    sums = ", ".join(f"cast(coalesce(sum({name}), 0) as bigint) as {name}" for name in names)
    (row,) = run.engine.rows(f"select {sums}, min(oldest) as oldest, max(newest) as newest from {visibility}")
    totals = {name: int(row[name]) for name in names}
    times = plain({"oldest": row["oldest"], "newest": row["newest"]})
    return {**totals, "topics": len(run.topics), "partitions": len(run.spans)}, times["oldest"], times["newest"]


def _over_time(run: _Run, findings: Sequence[Finding]) -> list[Bucket]:
    """Repeated records in at most 60 stretches of time of one length; one that several findings name counts once."""
    parts = [each.repeated(stored(each.name)) for each in findings if each.repeated is not None]
    if not parts:
        return []
    # without "all" a union keeps each record once
    records = " union ".join(f"select * from ({part}) p" for part in parts)
    seconds = f"select cast(floor(unix_micros(timestamp) / 1000000) as bigint) as second from ({records}) u"
    (ends,) = run.engine.rows(f"select min(second) as first_second, max(second) as last_second from ({seconds}) s")
    if ends["first_second"] is None:
        return []
    first, seconds_in_all = int(ends["first_second"]), int(ends["last_second"]) - int(ends["first_second"]) + 1
    width = max(1, -(-seconds_in_all // _BUCKETS))
    counts = run.engine.rows(
        f"""
        select number, count(*) as repeated
        from (select cast(floor((second - {first}) / {width}) as int) as number from ({seconds}) s) n group by number"""
    )
    counted = {row["number"]: int(row["repeated"]) for row in counts if row["number"] is not None}
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
    _stored(run, CARRIED_TABLE, carry(run.limits.now_ms - request.carry_ms))
    document = json.dumps(summary.as_json(), indent=2)
    write_whole(run.directory / "summary.json", document.encode())
    write_whole(run.directory / "report.html", html_page(summary).encode())
    write_whole(run.directory / "report.png", png_page(summary))
    done = request.out / f"run={run.name}"
    run.directory.rename(done)
    if run.is_readable:
        places = next_places(run.engine, run.limits, run.spans, run.state)
        save_state(request.out, State(run.name, places))
    return done
