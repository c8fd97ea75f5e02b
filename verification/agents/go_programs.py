"""Agents written in Go, built from their released modules."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from kproxy.testing.cache import installed
from kproxy.testing.tools import find_tool, run_tool
from verification.agents.agent import TOPIC, FollowsFile
from verification.agents.packages import Unpacked

__all__ = ["OpenTelemetry", "Telegraf"]

_COLLECTOR: Final = Path(__file__).with_name("otelcol")
#: Of Telegraf's plugins only these are built; with all of them the build takes many times as long.
_TAGS: Final = "custom,inputs.tail,outputs.kafka,parsers.value,serializers.influx"


class Telegraf(FollowsFile):
    """Its output ``outputs.kafka``: sarama.

    What sarama gives up is sent once more by Telegraf itself, to other partitions. No proxy can tell such a copy from a
    new metric, so sarama has to be the one that retries.
    """

    name = "telegraf"
    title = "Telegraf `outputs.kafka`"
    needs = "`max_retry = 100`, `metadata_retry_max = 100`"
    _release = "1.37.2"

    @classmethod
    def unpacked(cls) -> Unpacked:
        module = f"github.com/influxdata/telegraf/cmd/telegraf@v{cls._release}"
        return Unpacked(installed("agent-go", [module, _TAGS], partial(_install, module)), cls._release)

    def command(self, unpacked: Unpacked) -> Sequence[str]:
        path = self.directory / "telegraf.conf"
        path.write_text(f"""
[agent]
  interval = "1s"
  flush_interval = "1s"
[[inputs.tail]]
  files = ["{self.input}"]
  initial_read_offset = "beginning"
  data_format = "value"
  data_type = "string"
[[outputs.kafka]]
  brokers = ["{self.bootstrap}"]
  topic = "{TOPIC}"
  data_format = "influx"
  max_retry = 100
  metadata_retry_max = 100
""")
        self.input.touch()
        return [str(unpacked.one("telegraf")), "--config", str(path)]


class OpenTelemetry(FollowsFile):
    """The collector's exporter ``kafka``: franz-go, not idempotent since it asks for the leader's acknowledgement only.

    What is not written within ``timeout`` is sent once more by the collector itself, as new records.
    """

    name = "opentelemetry"
    title = "OpenTelemetry collector `kafka`"
    needs = "`timeout: 120s`"
    _release = "0.165.1"

    @classmethod
    def unpacked(cls) -> Unpacked:
        files = [path.read_text(encoding="utf-8") for path in sorted(_COLLECTOR.iterdir())]
        return Unpacked(installed("agent-go", files, _build_collector), cls._release)

    def command(self, unpacked: Unpacked) -> Sequence[str]:
        path = self.directory / "collector.yaml"
        path.write_text(f"""
receivers:
  filelog:
    include: [{self.input}]
    start_at: beginning
exporters:
  kafka:
    brokers: ["{self.bootstrap}"]
    timeout: 120s
    logs: {{topic: {TOPIC}, encoding: raw}}
service:
  pipelines:
    logs: {{receivers: [filelog], exporters: [kafka]}}
  telemetry: {{metrics: {{level: none}}}}
""")
        self.input.touch()
        return [str(unpacked.one("otelcol")), "--config", f"file:{path}"]


def _build_collector(target: Path) -> None:
    run_tool([_go(), "build", "-o", str(target / "otelcol"), "."], _COLLECTOR)


def _install(module: str, target: Path) -> None:
    run_tool([_go(), "install", "-tags", _TAGS, module], target, {**os.environ, "GOBIN": str(target)})


def _go() -> str:
    return find_tool("go", "Go 1.26 or later")
