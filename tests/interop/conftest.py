"""What the interop tests share: a broker, kproxy in front of it, and each client's run.

With `KPROXY_INTEROP=direct` the clients talk to a Kafka 3.9.1, which serves every version since 0.8, with no kproxy in
between: this shows that the drivers are right, and what a client can do at all.
"""

import functools
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

import pytest

from kproxy.testing.kafka import DEFAULT_VERSION, PATIENT, RealKafka
from tests.interop import lossy, results
from tests.interop.catalog import Client
from tests.interop.homes import OVERRIDES, Home, rule_and_release
from tests.interop.proxy import KproxyProcess
from tests.interop.request_versions import RequestVersions, Versions
from tests.interop.transactional import Transactional

_RESULT = "result"
"""The property of a test that names the result in docs/clients.md which it is part of."""
VERSIONS = "versions"
"""The property of a test that has a result's name, a release of Kafka, and the versions of requests sent to it."""


@dataclass(frozen=True)
class Target:
    """Where the clients connect to, and the broker behind."""

    bootstrap: str
    kafka: RealKafka
    kproxy: KproxyProcess | None


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    if os.environ.get("KPROXY_INTEROP") == "direct":
        with RealKafka(version="3.9.1", config=PATIENT) as kafka:
            yield Target(kafka.bootstrap, kafka, None)
        return
    kafka = request.getfixturevalue("kafka")
    with KproxyProcess(kafka.bootstrap, tmp_path_factory.mktemp("kproxy") / "log") as kproxy:
        yield Target(kproxy.bootstrap, kafka, kproxy)
        kproxy.check()


@pytest.fixture(scope="session")
def home(
    request: pytest.FixtureRequest, kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Home]]:
    """Give each of `homes.HOMES` by its name, started when first asked for; one that records requests is another."""
    with ExitStack() as running:

        @functools.cache
        def start(name: str, *, recorded: bool = False) -> Home:
            if name == "native":
                return Home(name, kafka.bootstrap, kafka, None)
            if name == "auto":
                target: Target = request.getfixturevalue("target")
                return Home(name, target.bootstrap, target.kafka, target.kproxy)
            log = tmp_path_factory.mktemp("transactions") / "log"
            rule, release = rule_and_release(name)
            options = ("--transactions-home", rule, "--isolation-level-overrides", OVERRIDES)
            old = release != DEFAULT_VERSION
            brokers = running.enter_context(RealKafka(version=release, config=PATIENT)) if old else kafka
            if recorded:
                seen = RequestVersions()
                chain = running.enter_context(lossy.through_kproxy(brokers.bootstrap, log, *options, watch=seen.watch))
                return Home(name, chain.bootstrap, brokers, chain.kproxy, seen)
            kproxy = running.enter_context(KproxyProcess(brokers.bootstrap, log, *options))
            return Home(name, kproxy.bootstrap, brokers, kproxy)

        yield start


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of ``make client-results``."""
    parser.addoption("--record-clients", action="store_true", help="record which clients passed, for docs/clients.md")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Note whose result a test is part of; the note is in the test's reports, too."""
    match getattr(item, "callspec", None) and item.callspec.params:  # type: ignore[attr-defined]
        case {"run": (str(home), Transactional(name=client))}:
            item.user_properties.append((_RESULT, results.in_home(home, client)))
        case {"outcome": Client(name=client)}:
            item.user_properties.append((_RESULT, client))


def _shows(test: pytest.Item | pytest.TestReport) -> set[str]:
    return {str(value) for key, value in test.user_properties if key == _RESULT}


class _Recorder:
    """Whose tests all ran and passed, kproxy in between."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.versions: defaultdict[str, dict[str, Versions]] = defaultdict(dict)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        for item in items:
            self.failed |= _shows(item)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed |= _shows(report)
        elif report.when == "call" and report.passed:
            self.passed |= _shows(report)
            for key, value in report.user_properties:
                if key == VERSIONS:
                    result, release, versions = cast("tuple[str, str, Versions]", value)
                    self.versions[result][release] = versions

    def pytest_sessionfinish(self) -> None:
        passed, date = self.passed - self.failed, f"{datetime.now(UTC):%Y-%m-%d}"
        results.add(passed, date, f"Kafka {DEFAULT_VERSION}", versions=self.versions)


def pytest_configure(config: pytest.Config) -> None:
    """Record what passes if that is asked for; not in a worker, which knows only what it ran itself."""
    is_asked = config.getoption("--record-clients", default=False) and not hasattr(config, "workerinput")
    if is_asked and os.environ.get("KPROXY_INTEROP") != "direct":
        config.pluginmanager.register(_Recorder())


@pytest.fixture(autouse=True)
def _proxy_in_order(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test that uses kproxy ends with it alive and no traceback in its log."""
    yield
    if "target" in request.fixturenames:
        target: Target = request.getfixturevalue("target")
        if target.kproxy is not None:
            target.kproxy.check()
