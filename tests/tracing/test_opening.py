import sys

import pytest

from kproxy.config import Address, Config, ExitCode, StartupError
from kproxy.proxy.process_stats import ProcessStats
from kproxy.tracing.opening import open_tracing

BROKERS = (Address("broker", 9092),)


def test_it_is_off_by_default_and_imports_nothing() -> None:
    assert open_tracing(Config(bootstrap_servers=BROKERS), ProcessStats()) is None


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kproxy.tracing.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(StartupError, match=r"pip install 'kproxy\[otel\]'") as caught:
        open_tracing(Config(bootstrap_servers=BROKERS, otel_exporter_otlp_endpoint="http://c:4318"), ProcessStats())
    assert caught.value.exit_code == ExitCode.USAGE
