"""What is loaded is loaded by one list, for ``kproxy run`` and ``kproxy config check``."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from kproxy.config import Address, Config, ExitCode, StartupError
from kproxy.proxy.process_stats import ProcessStats
from kproxy.proxy.stats import Stats
from kproxy.resources import Resources, load_resources, loaders, open_tracing

BROKERS = (Address("kafka", 9092),)


async def test_each_resource_has_its_loader_and_what_is_off_is_none() -> None:
    config = Config(bootstrap_servers=BROKERS)
    assert list(loaders(config, Stats())) == [field.name for field in fields(Resources)]
    loaded = load_resources(config, Stats())
    assert (loaded.tracing, loaded.authorization, loaded.quotas, loaded.logins) == (None, None, None, None)
    assert loaded.networks.own is loaded.networks.for_client("User:alice")


async def test_the_first_file_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    config = Config(bootstrap_servers=BROKERS, acl_file=tmp_path / "none", quotas_file=tmp_path / "none")
    with pytest.raises(StartupError, match=f"cannot read {tmp_path}/none"):
        load_resources(config, Stats())


def test_a_start_does_not_import_what_is_off() -> None:
    off = (
        "kproxy.net.authorization",
        "kproxy.net.quotas",
        "kproxy.net.client_login.login_worker",
        "kproxy.txn.procedures.broker_owner",
        "kproxy.txn.procedures.log_owner",
        "kproxy.proxy.authorization.screen",
        "kproxy.proxy.client_login.gate",
        "kproxy.proxy.handlers.own_topics",
        "kproxy.tracing",
    )
    script = f"import kproxy.app, sys; print(*set({off}) & set(sys.modules))"
    imported = subprocess.run([sys.executable, "-c", script], check=True, timeout=60, capture_output=True, text=True)
    assert imported.stdout.split() == []


def test_tracing_is_off_by_default() -> None:
    assert open_tracing(Config(bootstrap_servers=BROKERS), ProcessStats()) is None


def test_what_tracing_misses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kproxy.tracing.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(StartupError, match=r"pip install '\.\[otel\]'") as caught:
        open_tracing(Config(bootstrap_servers=BROKERS, otel_exporter_otlp_endpoint="http://c:4318"), ProcessStats())
    assert caught.value.exit_code == ExitCode.USAGE
