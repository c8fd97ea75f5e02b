"""All agents, by name."""

from collections.abc import Mapping
from typing import Final

from verification.agents.agent import Agent
from verification.agents.appenders import Log4j1, Log4j2, Logback
from verification.agents.debezium import Debezium
from verification.agents.debian import Collectd, Kcat, Rsyslog, SyslogNg
from verification.agents.go_programs import OpenTelemetry, Telegraf
from verification.agents.mirrors import MirrorMaker1, MirrorMaker2
from verification.agents.pipelines import Connect, Flume

__all__ = ["AGENTS"]

_ALL: Final[tuple[type[Agent], ...]] = (
    *(Rsyslog, SyslogNg, Collectd, Kcat),
    *(Telegraf, OpenTelemetry, Log4j2, Logback, Log4j1),
    *(Connect, MirrorMaker2, MirrorMaker1, Flume, Debezium),
)
AGENTS: Final[Mapping[str, type[Agent]]] = {agent.name: agent for agent in _ALL}
