"""One rendering for all that ask at once, and no format that only a stranger knows."""

import gzip
from collections.abc import Iterable

import pytest
import trio
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kproxy.control.metrics import make_registry
from kproxy.control.metrics_page import MetricsPage
from kproxy.proxy.stats import Stats

OPEN = "application/openmetrics-text"


class Counting(Collector):
    """Counts how often it is read."""

    def __init__(self) -> None:
        self.count = 0

    def collect(self) -> Iterable[Metric]:
        self.count += 1
        yield GaugeMetricFamily("reads", "How often.", value=self.count)
        yield GaugeMetricFamily("second", "Another one.", value=1)


async def test_those_who_ask_at_once_share_a_rendering_and_none_is_older_than_its_request() -> None:
    registry = Counting()
    page, found = MetricsPage(registry), []

    async def ask() -> None:
        found.append((await page.render("", ""))[0])

    async with trio.open_nursery() as nursery:
        for _ in range(300):
            nursery.start_soon(ask)
    assert len(found) == 300
    assert registry.count <= 2
    last = registry.count
    rendered, _ = await page.render("", "")
    assert b"reads %d.0\n" % (last + 1) in rendered


async def test_other_tasks_run_while_a_long_page_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproxy.control.metrics_page._TURN_SECONDS", -1)
    seen: list[str] = []

    class Long(Counting):
        def collect(self) -> Iterable[Metric]:
            for metric in [*super().collect(), GaugeMetricFamily("third", "And another one.", value=1)]:
                seen.append("collected")
                yield metric

    async def other() -> None:
        while seen.count("collected") < 3:
            seen.append("other")
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(MetricsPage(Long()).render, "", "")
        nursery.start_soon(other)
    first, _, third = [at for at, what in enumerate(seen) if what == "collected"]
    assert "other" in seen[first:third]


async def test_it_is_zipped_where_that_is_asked_for() -> None:
    page = MetricsPage(make_registry(Stats()))
    plain, headers = await page.render("", "")
    assert "content-encoding" not in headers
    zipped, headers = await page.render("", "deflate, gzip;q=1.0")
    assert headers["content-encoding"] == "gzip"
    assert gzip.decompress(zipped).splitlines()[:2] == plain.splitlines()[:2]
    assert len(zipped) < len(plain) // 4


@pytest.mark.parametrize("version", ["x", "1" * 5000, "1.0.x", "-1", "2.0.0", ""])
async def test_a_version_that_nobody_has_is_no_failure(version: str) -> None:
    page = MetricsPage(Counting())
    text, headers = await page.render(f"{OPEN};version={version};q=0.5,text/plain;version={version}", "")
    assert headers["content-type"].startswith(f"{OPEN}; version=1.0.0")
    assert text.endswith(b"# EOF\n")
    assert len(page._pages) == 1


async def test_the_formats_that_prometheus_asks_for() -> None:
    page = MetricsPage(Counting())
    asked = f"{OPEN};version=1.0.0;escaping=allow-utf-8;q=0.6,{OPEN};version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.3"
    assert (await page.render(asked, ""))[1]["content-type"].endswith(
        "version=1.0.0; charset=utf-8; escaping=allow-utf-8"
    )
    assert (await page.render("text/plain;version=0.0.4", ""))[1]["content-type"].startswith(
        "text/plain; version=0.0.4"
    )
