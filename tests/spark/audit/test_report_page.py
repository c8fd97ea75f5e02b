from html.parser import HTMLParser

import pytest

from kproxy.spark.audit.report_page import html_page
from kproxy.spark.audit.summary import Summary
from tests.spark.audit.summaries import EVIL, summary

VOID = {"meta", "rect", "line"}


class Reader(HTMLParser):
    """Checks that what is opened is closed, and collects tags, addresses and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        if tag not in VOID or tag == "rect":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


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
    assert not reader.addresses
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
    assert "Looked for, not found" in text
    assert "Not looked for: duplicate_keys" in text


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
