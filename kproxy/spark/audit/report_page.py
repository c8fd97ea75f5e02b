"""The report as one HTML page: nothing is loaded, nothing runs, and what comes from data is escaped."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from kproxy.spark.audit.catalogue import FINDINGS, Severity
from kproxy.spark.audit.charts import Chart, charts, size
from kproxy.spark.audit.style import CSS
from kproxy.spark.audit.summary import AuditOutcome, Cell, Row, Summary
from kproxy.spark.audit.svg import svg

_MOST_TOPICS: Final = 20
_MOST_UNFOLDED: Final = 5
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_FAINT: Final = '<span class="faint">{}</span>'


def html_page(summary: Summary) -> str:
    """The whole document, UTF-8."""
    head = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Audit {escape(summary.run)}</title><style>{CSS}</style></head><body>"
    )
    return f"{head}{''.join(_body(summary))}</body></html>\n"


def _body(summary: Summary) -> Iterator[str]:
    former = f", continues run {escape(summary.former_run)}" if summary.former_run else ""
    yield f'<h1>Audit of Kafka topics</h1><p class="faint">Run {escape(summary.run)}{former}</p>'
    yield f'<div class="verdict {summary.verdict}"><b>{escape(summary.sentence)}</b></div>'
    found = [outcome for severity in Severity for outcome in summary.found(severity)]
    yield _findings(summary, found)
    yield from _asked(summary)
    yield _facts(summary)
    for chart in charts(summary):
        yield from _chart(chart)
    for outcome in found:
        yield from _outcome(outcome)
    hidden = [row for row in summary.stable_offsets if row["records_above"]]
    if hidden:
        yield "<h2>Records above the last stable offset</h2>"
        yield _folded(hidden, len(hidden))


def _findings(summary: Summary, found: Sequence[AuditOutcome]) -> str:
    """Table of all findings: first those that have rows, each with a link to its section."""
    none = _badge("held", "none") if summary.is_judged else _FAINT.format("not judged")
    titles = {each.name: each.title for each in FINDINGS}
    rows = [
        *((f'<a href="#{escape(each.name)}">{escape(each.title)}</a>', _count(each)) for each in found),
        *((escape(each.title), none) for each in summary.outcomes if not each.count),
        *((escape(titles[name]), _FAINT.format("not asked for")) for name in summary.not_looked_at),
    ]
    lines = "".join(f"<tr><td>{title}</td><td>{result}</td></tr>" for title, result in rows)
    return f"<table><thead><tr><th>finding</th><th>found</th></tr></thead><tbody>{lines}</tbody></table>"


def _asked(summary: Summary) -> Iterator[str]:
    """What was asked: cluster, topics, options, and the time range of the records."""
    rest = len(summary.topics) - _MOST_TOPICS
    topics = ", ".join(summary.topics[:_MOST_TOPICS]) + (f", and {rest:,} more (summary.json)" if rest > 0 else "")
    options = ", ".join(f"{name} {value}" for name, value in summary.options.items() if value is not None)
    times = f"{summary.oldest} to {summary.newest} (UTC)" if summary.oldest else "no records"
    rows = (("Cluster", summary.cluster), ("Topics", topics), ("Records from", times), ("Options", options))
    yield '<dl class="asked">' + "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in rows) + "</dl>"


def _facts(summary: Summary) -> str:
    totals = summary.totals
    facts = (
        ("began (UTC)", summary.at),
        ("topics", f"{totals['topics']:,}"),
        ("partitions", f"{totals['partitions']:,}"),
        ("record batches", f"{totals['batches']:,}"),
        ("records", f"{totals['records']:,}"),
        ("bytes", size(totals["bytes"])),
    )
    return '<ul class="facts">' + "".join(f"<li>{name}<b>{escape(text)}</b></li>" for name, text in facts) + "</ul>"


def _chart(chart: Chart) -> Iterator[str]:
    yield f"<h2>{escape(chart.title)}</h2>"
    if not chart.bars:
        yield '<p class="faint">none in this run</p>'
        return
    if len(chart.tones) > 1:
        keys = "".join(f'<span><i class="{tone}"></i>{escape(tone)}</span>' for tone in chart.tones)
        yield f'<p class="legend">{keys}</p>'
    yield svg(chart)


def _outcome(outcome: AuditOutcome) -> Iterator[str]:
    yield f'<h2 id="{escape(outcome.name)}">{escape(outcome.title)} {_count(outcome)}</h2>'
    yield f"<p>{escape(outcome.meaning)}</p><p><b>What to do:</b> {escape(outcome.remedy)}</p>"
    yield _folded(outcome.worst, outcome.count)
    if outcome.count > len(outcome.worst):
        rest = outcome.count - len(outcome.worst)
        yield f'<p class="faint">and {rest:,} more, in the table {escape(outcome.name)}</p>'


def _count(outcome: AuditOutcome) -> str:
    kind = outcome.severity.value
    return _badge(kind, f"{kind}: {outcome.count:,}")


def _badge(kind: str, text: str) -> str:
    return f'<span class="badge {kind}">{text}</span>'


def _folded(rows: Sequence[Row], count: int) -> str:
    """A table under a line that says how many of all rows it has; a short one is shown at once."""
    is_open = " open" if len(rows) <= _MOST_UNFOLDED else ""
    shown = f"{len(rows):,} of {count:,}" if len(rows) < count else f"{count:,}"
    return f"<details{is_open}><summary>Rows, worst first: {shown}</summary>{_table(rows)}</details>"


def _table(rows: Sequence[Row]) -> str:
    names = list(rows[0])
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    lines = "".join(f"<tr>{''.join(_cell(row[name]) for name in names)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def _cell(value: Cell) -> str:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return f"<td>{escape('-' if value is None else str(value))}</td>"
    return f'<td class="number">{escape(str(value))}</td>'
