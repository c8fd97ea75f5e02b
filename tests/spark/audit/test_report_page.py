from html.parser import HTMLParser

import pytest

from kproxy.spark.audit.catalogue import Severity
from kproxy.spark.audit.report_page import html_page
from kproxy.spark.audit.summary import Summary
from tests.spark.audit.summaries import EVIL, outcome, summary

VOID = {"meta", "rect", "line"}


class Reader(HTMLParser):
    """Checks that what is opened is closed, and collects tags, addresses, ids, text, and the rows of tables."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.text: list[str] = []
        self.rows: list[list[str]] = []
        self.folded: list[bool] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        if tag not in VOID or tag == "rect":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "details":
            self.folded.append("open" not in dict(attrs))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if "tr" in self.open:
            self.rows[-1].append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open
    return reader


@pytest.mark.parametrize("given", [summary(), summary(broken=7, warnings=1, former_run="earlier")])
def test_the_page_is_whole_loads_nothing_and_runs_nothing(given: Summary) -> None:
    page = html_page(given)
    reader = read(page)
    assert all(address.startswith("#") for address in reader.addresses)
    assert not {"script", "link", "iframe", "img", "object"} & set(reader.tags)
    assert "http" not in page.replace("http-equiv", "")
    assert "@import" not in page
    assert "url(" not in page
    assert given.sentence in reader.text


def test_what_comes_from_data_is_escaped() -> None:
    page = html_page(summary(broken=3))
    assert EVIL not in page
    assert "<script" not in page
    assert EVIL in read(page).text


def test_the_worst_are_shown_and_the_rest_is_counted() -> None:
    text = " ".join(read(html_page(summary(broken=7))).text)
    assert "broken: 7" in text
    assert "and 5 more, in the table first" in text


def test_the_page_begins_with_all_findings_the_worst_first() -> None:
    found = [
        outcome("unprotected", Severity.WARNING, 1),
        outcome("sequence_gaps", Severity.BROKEN),
        outcome("unknown_groups", Severity.UNKNOWN, 4),
        outcome("stuck_partitions", Severity.BROKEN, 1200),
    ]
    page = read(html_page(summary(outcomes=found)))
    assert page.rows[:6] == [
        ["finding", "found"],
        ["Title of stuck_partitions", "broken: 1,200"],
        ["Title of unprotected", "warning: 1"],
        ["Title of unknown_groups", "unknown: 4"],
        ["Title of sequence_gaps", "none"],
        ["Keys that come more than once", "not asked for"],
    ]
    # the sections, too, are in this order
    assert page.addresses == ["#stuck_partitions", "#unprotected", "#unknown_groups"]
    assert page.ids == [address.removeprefix("#") for address in page.addresses]


def test_nothing_is_called_none_where_nothing_could_be_judged() -> None:
    found = [outcome("unreadable_log", Severity.BROKEN, 1), outcome("sequence_gaps", Severity.BROKEN)]
    rows = read(html_page(summary(outcomes=found))).rows
    assert rows[1:3] == [["Title of unreadable_log", "broken: 1"], ["Title of sequence_gaps", "not judged"]]


@pytest.mark.parametrize(("count", "is_folded"), [(3, False), (50, True)])
def test_long_tables_are_folded_under_the_number_of_their_rows(count: int, is_folded: bool) -> None:
    rows = [{"topic": "orders", "partition": number, "records_above": 1} for number in range(count)]
    page = read(html_page(summary(broken=7, stable_offsets=rows)))
    assert page.folded == [False, is_folded]
    assert "Rows, worst first: 2 of 7" in page.text
    assert f"Rows, worst first: {count}" in page.text


def test_the_page_names_what_was_asked() -> None:
    topics = [f"topic-{number}" for number in range(25)]
    text = " ".join(read(html_page(summary(topics=topics))).text)
    assert "Cluster kproxy:9092, cluster-1 " in text
    assert "topic-19, and 5 more (summary.json)" in text
    assert "topic-20" not in text
    assert "2026-11-20 08:00:00 to 2026-11-21 11:59:00 (UTC)" in text
    assert "--topics orders|bills, --window 10m" in text


def test_an_audit_of_nothing() -> None:
    empty = summary(
        visibility=[], protection=[], stable_offsets=[], repeated_over_time=[], not_looked_at=[], oldest=None
    )
    text = read(html_page(empty)).text
    assert text.count("none in this run") == 3
