"""The status page in a real browser: what people see, and what web pages of others get."""

import base64
import json
import math
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from kproxy.config import Address, Config
from kproxy.control.listeners import serve_http
from kproxy.control.serving import bind_tcp, serve_app
from kproxy.proxy.facts import LegacyClient, Traffic, Trouble
from kproxy.proxy.stats import Stats
from kproxy.txn.described import OwnerId
from tests.control.fake_facts import CLIENT, INSTANCE, NOW_MS, STATUS, FakeFacts
from tests.control.fake_transactions import FakeTransactions
from tests.support.browser import FOREIGN_NAME, PATIENCE_SECONDS, chromium

pytestmark = pytest.mark.browser

TOKEN = "correct-horse-battery"
#: A page of another site, which tries what a browser lets it try; its title has the result.
EVIL = """<!doctype html><title>busy</title><script>
const ask = (path, options) => fetch("http://127.0.0.1:PORT" + path, options).then(
  (answer) => answer.type + " " + answer.status, () => "failed");
(async () => {
  const abort = "/v1/transactions/kproxy-loader/abort";
  document.title = JSON.stringify([
    await ask("/v1/status"),
    await ask("/v1/clients", {mode: "no-cors"}),
    await ask(abort, {method: "POST", mode: "no-cors"}),
    await ask(abort, {method: "POST", headers: {Authorization: "Bearer correct-horse-battery"}}),
  ]);
})();
</script>"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    with chromium() as browser:
        yield browser


class Served:
    """A status page and its server."""

    def __init__(self, tmp_path: Path) -> None:
        (tmp_path / "token").write_text(TOKEN, encoding="ascii")
        self.config = Config(
            bootstrap_servers=(Address("kafka", 9092),),
            http=Address("127.0.0.1", 0),
            control_token_file=tmp_path / "token",
        )
        self.facts, self.control, self.stats = FakeFacts(), FakeTransactions(), Stats()
        self.address = Address("127.0.0.1", 0)

    @property
    def aborts(self) -> list[Any]:
        return [call for call in self.control.calls if call[0] == "abort"]


@asynccontextmanager
async def served(tmp_path: Path, **options: Any) -> AsyncIterator[Served]:
    page = Served(tmp_path)
    page.config = replace(page.config, **options)
    with trio.fail_after(120):
        await page.control.begin(client_id="loader", transactional_id=None, timeout_ms=60_000)
        async with trio.open_nursery() as nursery:
            page.address = await nursery.start(serve_http, page.config, page.stats, page.facts, page.control)
            yield page
            nursery.cancel_scope.cancel()


async def with_page(tmp_path: Path, browser: Chrome, work: Callable[[Served], None]) -> Served:
    """Opens the page, does blocking work on it in a thread, and closes it while it is still served."""
    async with served(tmp_path) as page:
        await on_page(page, browser, work)
    return page


async def on_page(page: Served, browser: Chrome, work: Callable[[Served], None]) -> None:
    """As ``with_page``, of one that is served."""

    def run() -> None:
        browser.get(f"http://{page.address}/")
        until(browser, lambda: text(browser, "state") == "ready")
        try:
            work(page)
        finally:
            browser.get("about:blank")

    await trio.to_thread.run_sync(run)


def until(browser: Chrome, condition: Callable[[], object]) -> None:
    WebDriverWait(browser, PATIENCE_SECONDS, poll_frequency=0.05).until(lambda _: condition())


def text(browser: Chrome, element_id: str) -> str:
    return browser.find_element(By.ID, element_id).text


def complaints(browser: Chrome) -> list[str]:
    """What the console holds: breaches of the Content-Security-Policy, errors, failed loads."""
    return [str(row["message"]) for row in browser.get_log("browser")]


async def test_people_see_what_runs(tmp_path: Path, browser: Chrome) -> None:
    def work(page: Served) -> None:
        until(browser, lambda: "kproxy-loader" in text(browser, "transactions"))
        assert text(browser, "requests") == "240/s"
        assert text(browser, "bytes-in") == "2.5 MB/s"
        assert text(browser, "requests-line") == "max 240/s\n0\n3 min ago\nnow"
        assert text(browser, "bytes-in-line") == "max 2.5 MB/s\n0\n3 min ago\nnow"
        assert (text(browser, "latency"), text(browser, "latency-note")) == ("25 ms", "p50 2.5 ms, last 3 min")
        assert text(browser, "in-doubt") == "9 batches"
        for words in ("billing", "librdkafka 2.8.0", "Produce v2, Metadata v1", "Produce: NOT_ENOUGH_REPLICAS"):
            assert words in text(browser, "clients")
        assert "4611686018427389904" in text(browser, "lanes")
        assert "given up" in text(browser, "lanes")
        assert "kafka-1:9092 up 4.1 a 19093" in text(browser, "brokers")
        assert "(1 min 30 s): cannot connect to kafka-2:9092: Connection refused; tried again every 2 s" in text(
            browser, "brokers"
        )
        until(browser, lambda: "2 instances, 1 in trouble, 1 older than 0.2.0." in text(browser, "fleet-note"))
        assert "box-2 no broker has been reached yet 3 s ago 0.2.0 node-8" in text(browser, "fleet")
        assert browser.find_elements(By.CSS_SELECTOR, "#requests-line polyline[points]")
        assert browser.title == "kproxy box-1"
        page.facts.the_clients = [CLIENT._replace(principal="User:CN=billing")]
        until(browser, lambda: "10.0.0.7, User:CN=billing" in text(browser, "clients"))
        page.facts.the_clients = []
        until(browser, lambda: "none" in text(browser, "clients"))

    await with_page(tmp_path, browser, work)
    assert complaints(browser) == []


def sections(browser: Chrome) -> list[str]:
    """The sections of the page, from its top."""
    found = browser.find_elements(By.CSS_SELECTOR, "main section")
    return [str(each.get_attribute("aria-labelledby")) for each in found]


def red(browser: Chrome) -> list[str]:
    """The texts that are shown in the colour of what is wrong."""
    return list(
        browser.execute_script(
            "const bad = getComputedStyle(document.getElementById('silent')).color;"
            "return [...document.querySelectorAll('main *, #state')].filter((each) => each.offsetParent &&"
            " !each.childElementCount && each.textContent && getComputedStyle(each).color === bad)"
            ".map((each) => each.textContent)"
        )
    )


async def test_health_comes_first_then_what_kproxy_did_and_nothing_that_works_is_red(
    tmp_path: Path, browser: Chrome
) -> None:
    def work(page: Served) -> None:
        until(browser, lambda: text(browser, "health-title") == "Nothing is wrong")
        assert sections(browser)[:4] == ["health-title", "did-title", "now-title", "legacy-title"]
        assert text(browser, "health-note").startswith("1 of 2 brokers answer; the oldest batch")
        assert text(browser, "health-note").endswith(" without an outcome waits for 140 ms")
        assert (text(browser, "matched"), text(browser, "lost")) == ("77", "9")
        assert text(browser, "matched-note") == "records that clients sent again, 7 of them without an equal timestamp"
        assert text(browser, "commits") == "11 committed"
        assert text(browser, "commits-note") == "4 aborted; 1 open, 2 prepared"
        sizes = browser.execute_script(
            "return [...document.querySelectorAll('.figure')]"
            ".map((each) => parseFloat(getComputedStyle(each).fontSize))"
        )
        assert sizes[0] > max(sizes[1:])
        page.facts.the_status = STATUS._replace(lost_records=0)
        page.facts.the_brokers = page.facts.the_brokers[:1]
        page.facts.the_fleet = page.facts.the_fleet._replace(instances=[INSTANCE])  # type: ignore[union-attr]
        browser.refresh()
        until(browser, lambda: "kafka-1" in text(browser, "brokers") and "box-1" in text(browser, "fleet"))
        assert red(browser) == []

    await with_page(tmp_path, browser, work)


async def test_an_outage_is_the_loudest(tmp_path: Path, browser: Chrome) -> None:
    what = [
        Trouble("no broker answers", NOW_MS - 45_000, "kafka-1:9092: Connection refused; tried again every 2 s", True),
        Trouble("connections of clients were refused in the last minute", None, "max_connections 3", False),
    ]

    def work(page: Served) -> None:
        page.facts.the_status = STATUS._replace(ready=False, reasons=["no broker answers"], troubles=what)
        until(browser, lambda: text(browser, "health-title").startswith("No broker answers since "))
        assert text(browser, "health-title").endswith(" (45 s)")
        assert text(browser, "troubles").splitlines() == [
            "kafka-1:9092: Connection refused; tried again every 2 s",
            "connections of clients were refused in the last minute",
            "max_connections 3",
        ]
        assert text(browser, "state") == "not ready"
        assert browser.find_element(By.ID, "health").get_attribute("class") == "bad"
        page.facts.the_status = STATUS._replace(ready=False, reasons=["no broker answers"], troubles=[what[0]] * 2)
        until(browser, lambda: text(browser, "health-title") == "2 things are wrong now")
        assert text(browser, "troubles").count("no broker answers since ") == 2
        page.facts.the_status = STATUS._replace(troubles=what[1:])
        until(browser, lambda: text(browser, "health-title") == "Serving, with a warning")
        assert browser.find_element(By.ID, "health").get_attribute("class") == "care"

    await with_page(tmp_path, browser, work)


async def test_clients_that_kafka_4_refuses_are_listed_and_those_that_left_come_last(
    tmp_path: Path, browser: Chrome
) -> None:
    def work(page: Served) -> None:
        assert text(browser, "legacy-count") == "1 client"
        assert text(browser, "legacy-note") == "Kafka 4 would refuse it; 1 connected, 0 left"
        assert "billing now Produce v2, Fetch v3 librdkafka 12,000 3" in text(browser, "legacy")
        assert "refuses it" in text(browser, "clients")
        left = LegacyClient("shelf-scanner", "", 310, ["Produce v0"], 0, NOW_MS - 7_500_000)
        both = [*STATUS.legacy_clients, left]
        page.facts.the_status = STATUS._replace(legacy_clients=both, legacy_total=2)
        until(browser, lambda: text(browser, "legacy-note") == "Kafka 4 would refuse them; 1 connected, 1 left")
        assert rows_of(browser, "legacy") == ["billing", "shelf-scanner"]
        assert "shelf-scanner 2 h 5 min ago, has left Produce v0 not reported 310 0" in text(browser, "legacy")
        page.facts.the_status = STATUS._replace(legacy_clients=[], legacy_total=0)
        until(browser, lambda: text(browser, "legacy-count") == "no client")
        assert not browser.find_element(By.ID, "legacy").is_displayed()
        assert "accepts it" in text(browser, "clients")

    await with_page(tmp_path, browser, work)
    assert complaints(browser) == []


def rows_of(browser: Chrome, table: str) -> list[str]:
    """The first cell of each row."""
    script = "return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)].map((row) => row.cells[0].textContent)"
    return list(browser.execute_script(script, table))


async def test_tables_are_sorted_and_filtered(tmp_path: Path, browser: Chrome) -> None:
    def work(page: Served) -> None:
        page.facts.the_clients = [
            CLIENT._replace(client_id=name, per_second=Traffic(size, 0.0, 0.0))
            for name, size in (("b-2", 900.0), ("b-10", 2e6), ("a", 7_000.0))
        ]
        until(browser, lambda: rows_of(browser, "clients") == ["b-2", "b-10", "a"])
        head = {th.text: th for th in browser.find_elements(By.CSS_SELECTOR, "#clients thead th button")}
        head["client.id"].click()
        assert rows_of(browser, "clients") == ["a", "b-2", "b-10"]
        head["In/s"].click()
        assert rows_of(browser, "clients") == ["b-10", "a", "b-2"]
        head["In/s"].click()
        assert rows_of(browser, "clients") == ["b-2", "a", "b-10"]
        field = browser.find_element(By.CSS_SELECTOR, "[data-filter=clients]")
        field.send_keys("b-")
        assert rows_of(browser, "clients") == ["b-2", "b-10"]
        page.facts.the_clients = page.facts.the_clients[1:]
        until(browser, lambda: rows_of(browser, "clients") == ["b-10"])
        field.send_keys("x")
        assert rows_of(browser, "clients") == ["none like this"]
        assert browser.switch_to.active_element == field

    await with_page(tmp_path, browser, work)
    assert complaints(browser) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [500, 1280])
async def test_nothing_is_squeezed(tmp_path: Path, browser: Chrome, width: int, scheme: str) -> None:
    """The pictures are kept in the directory SCREENSHOTS, if it is given: docs/images/status-page.webp is one."""

    def work(page: Served) -> None:
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        try:
            until(browser, lambda: "kproxy-loader" in text(browser, "transactions"))
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
            assert not browser.execute_script(
                "return [...document.querySelectorAll('h2, h3, .figure, .note, .pill, #health li, figure')]"
                ".filter((each) => each.offsetParent && each.scrollWidth > each.clientWidth + 1)"
                ".map((each) => each.textContent)"
            )
            directory = Path(os.environ.get("SCREENSHOTS", tmp_path))
            clip = {"x": 0, "y": 0, "width": width, "height": 840, "scale": 1}
            picture = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "webp", "quality": 70, "clip": clip})
            (directory / f"status-{width}-{scheme}.webp").write_bytes(base64.b64decode(picture["data"]))
        finally:
            browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})

    async with served(tmp_path) as page:
        page.facts.the_clients = [
            CLIENT._replace(last_error=None),
            CLIENT._replace(client_id="orders-service", software_name="apache-kafka-java", software_version="4.1.0",
                            versions={"Produce": 12, "Metadata": 13, "InitProducerId": 5}, host="10.0.0.9"),
            CLIENT._replace(client_id="payments", software_name="", software_version="",
                            versions={"Produce": 9, "Metadata": 8}, host="10.0.0.12", connections=1, last_error=None),
        ]  # fmt: skip
        clients = [LegacyClient("billing", "librdkafka", 12_000, ["Produce v2", "Fetch v3"], 3, NOW_MS),
                   LegacyClient("shelf-scanner", "", 310, ["Produce v0"], 0, NOW_MS - 7_500_000)]  # fmt: skip
        wave = [round(180 + 60 * math.sin(at / 7) + 15 * math.sin(at)) for at in range(90)]
        history = STATUS.history._replace(
            requests=wave, bytes_in=[1e4 * each for each in wave], bytes_out=[40.0 * each for each in wave]
        )
        page.facts.the_status = STATUS._replace(
            legacy_clients=clients, legacy_total=2, history=history, lost_records=0, brokers_up=2
        )
        page.facts.the_brokers = page.facts.the_brokers[:1]
        await on_page(page, browser, work)


@pytest.mark.parametrize("width", [500, 1280])
async def test_fifty_clients_and_long_errors_fit(tmp_path: Path, browser: Chrome, width: int) -> None:
    """No row is higher than four lines, no table pushes the next one out of sight, and nothing overflows."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}

    def work(_: Served) -> None:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        try:
            until(browser, lambda: len(rows_of(browser, "clients")) == 50)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
            heights = browser.execute_script(
                "return [...document.querySelectorAll('tbody tr')].map((each) => each.offsetHeight)"
            )
            assert max(heights) < 110
            blank = browser.execute_script(
                "return [...document.querySelectorAll('article')].filter((each) => each.offsetParent).map((each) =>"
                " each.getBoundingClientRect().bottom - each.lastElementChild.getBoundingClientRect().bottom)"
            )
            assert max(blank) < 60
            assert browser.execute_script("return document.getElementById('clients').parentNode.offsetHeight") < 500
        finally:
            browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    async with served(tmp_path) as page:
        versions = {"Produce": 9, "Metadata": 8, "Fetch": 11, "FindCoordinator": 2, "InitProducerId": 4, "EndTxn": 1}
        page.facts.the_clients = [CLIENT._replace(client_id=f"c-{each}", versions=versions) for each in range(50)]
        detail = "; ".join(f"cannot connect to {'broker' * 9}-{each}.example:9092: timed out" for each in range(3))
        outage = Trouble("no broker answers", NOW_MS - 45_000, detail, True)
        legacy = [LegacyClient(f"old-{each}", "", 9, ["Produce v2"]) for each in range(50)]
        page.facts.the_status = STATUS._replace(troubles=[outage] * 2, legacy_clients=legacy, legacy_total=50)
        await on_page(page, browser, work)


async def test_what_clients_call_themselves_is_text(tmp_path: Path, browser: Chrome) -> None:
    name = "<img src=x onerror=document.title='had'><script>document.title='had'</script>"

    def work(page: Served) -> None:
        page.facts.the_clients = [CLIENT._replace(client_id=name)]
        until(browser, lambda: name in text(browser, "clients"))
        assert not browser.find_elements(By.CSS_SELECTOR, "#clients img, #clients script")
        assert browser.title == "kproxy box-1"

    await with_page(tmp_path, browser, work)
    assert complaints(browser) == []


async def test_an_abort_asks_for_the_token(tmp_path: Path, browser: Chrome) -> None:
    def work(page: Served) -> None:
        until(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "#transactions tbody button"))
        browser.find_element(By.CSS_SELECTOR, "#transactions tbody button").click()
        assert text(browser, "ask-name") == "kproxy-loader"
        field = browser.find_element(By.ID, "token")
        field.send_keys("no-such-horse-battery")
        browser.find_element(By.ID, "ask-yes").click()
        until(browser, lambda: text(browser, "ask-error") == "That is not the token.")
        assert page.aborts == []
        assert page.stats.refused.http_refused == {("http", "token"): 1}
        field.clear()
        field.send_keys(TOKEN)
        browser.find_element(By.ID, "ask-yes").click()
        until(browser, lambda: "kproxy-loader" not in text(browser, "transactions"))
        assert not browser.find_element(By.ID, "ask").is_displayed()

    page = await with_page(tmp_path, browser, work)
    assert page.aborts == [("abort", "kproxy-loader", (), OwnerId(1000, 0), True)]
    [refused] = complaints(browser)
    assert "401" in refused


async def test_from_another_host_the_page_asks_for_the_token(tmp_path: Path, browser: Chrome) -> None:
    def run(page: Served) -> None:
        browser.get(f"http://{FOREIGN_NAME}:{page.address.port}/")
        try:
            until(browser, lambda: browser.find_element(By.ID, "key").is_displayed())
            assert text(browser, "state") == "asking"
            for word, shown in (("no-such-horse-battery", "That is not the token."), (TOKEN, "")):
                until(browser, lambda: browser.find_element(By.ID, "key").is_displayed())
                browser.find_element(By.ID, "key-token").send_keys(word)
                browser.find_element(By.ID, "key-yes").click()
                if shown:
                    until(browser, lambda: text(browser, "key-error") == "That is not the token.")
            until(browser, lambda: text(browser, "state") == "ready")
        finally:
            browser.get("about:blank")

    advertised = Address(FOREIGN_NAME, 9092)
    async with served(tmp_path, http=Address("0.0.0.0", 0), advertised_address=advertised) as page:
        await trio.to_thread.run_sync(run, page)
    assert all("401" in line for line in complaints(browser))


async def test_what_is_prepared_is_shown_and_aborted(tmp_path: Path, browser: Chrome) -> None:
    def work(page: Served) -> None:
        until(
            browser,
            lambda: "kproxy-loader loader 1000, epoch 0 Empty, undecided parts: 1" in text(browser, "transactions"),
        )

    async with served(tmp_path) as page:
        await page.control.prepare("kproxy-loader", owner=OwnerId(1000, 0))
        await on_page(page, browser, work)


async def test_without_a_token_there_is_a_reason_in_place_of_a_button(tmp_path: Path, browser: Chrome) -> None:
    def work(page: Served) -> None:
        until(browser, lambda: "kproxy-loader" in text(browser, "transactions"))
        assert not browser.find_element(By.CSS_SELECTOR, "#transactions tbody button").is_enabled()
        assert "control.token.file" in text(browser, "transactions-note")

    async with served(tmp_path, control_token_file=None) as page:
        await on_page(page, browser, work)


async def test_a_kproxy_that_has_ended_is_reported(tmp_path: Path, browser: Chrome) -> None:
    def look(page: Served) -> None:
        browser.get(f"http://{page.address}/")
        until(browser, lambda: text(browser, "state") == "ready")

    async with served(tmp_path) as page:
        await trio.to_thread.run_sync(look, page)

    def told() -> None:
        until(browser, lambda: "What is shown may be old." in text(browser, "silent"))
        browser.get("about:blank")
        browser.get_log("browser")

    await trio.to_thread.run_sync(told)


async def test_a_page_of_somebody_else_gets_nothing(tmp_path: Path, browser: Chrome) -> None:
    async with served(tmp_path) as page, trio.open_nursery() as nursery:
        evil = HTMLResponse(EVIL.replace("PORT", str(page.address.port)))

        async def show(request: object) -> HTMLResponse:
            return evil

        [listener] = await bind_tcp("evil", Address("127.0.0.1", 0))
        port = listener.getsockname()[1]
        await nursery.start(serve_app, lambda: Starlette(routes=[Route("/", show)]), [listener])

        def tried(host: str) -> Any:
            browser.get(f"http://{host}:{port}/")
            until(browser, lambda: browser.title != "busy")
            found = json.loads(browser.title)
            browser.get("about:blank")
            return found

        # what is sent without cors is answered, but its response is kept from the page: it is a refusal all the same
        for host in ("127.0.0.1", FOREIGN_NAME):
            assert await trio.to_thread.run_sync(tried, host) == ["failed", "opaque 0", "opaque 0", "failed"]
        browser.get_log("browser")
        nursery.cancel_scope.cancel()
    assert page.aborts == []
    assert set(page.stats.refused.http_refused) == {("http", "origin")}
    assert page.stats.refused.http_refused["http", "origin"] >= 6


async def test_a_foreign_name_that_leads_here_shows_nothing(tmp_path: Path, browser: Chrome) -> None:
    async with served(tmp_path) as page:

        def look() -> str:
            browser.get(f"http://{FOREIGN_NAME}:{page.address.port}/")
            shown = browser.find_element(By.TAG_NAME, "body").text
            browser.get("about:blank")
            browser.get_log("browser")
            return shown

        shown = await trio.to_thread.run_sync(look)
    assert "CLUSTER_AUTHORIZATION_FAILED" in shown
    assert page.stats.refused.http_refused[("http", "host")] >= 1
