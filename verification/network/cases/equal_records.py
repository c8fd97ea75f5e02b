"""Equal records that are no retries, of a released client whose format has no timestamps."""

from collections.abc import Sequence
from typing import Any, Final

from verification.network.clients import KAFKA_PYTHON_OF_2019
from verification.network.outcome import Outcome, compare
from verification.network.site import Site, bootstrap_of

__all__ = ["equal_records", "orderly_restart"]

_VERSIONS: Final = ((0, 8, 2), (0, 9))
_STATES: Final = ("open", "closed", "open", "closed", "open")
_SAME: Final = 20 * ("same",)
_HEARTBEATS: Final = 4
_STOP_S: Final = 60.0


def equal_records(site: Site) -> Outcome:
    """One process for each of five records, a script of 20 equal records run twice, heartbeats: all are written.

    Takes for granted: default options, a direct connection, and programs that close their connections in good order.
    """
    outcome = Outcome(0, 0, 0, 0, 0)
    with site.wire(), site.kproxy("equal-records") as kproxy:
        for version in _VERSIONS:
            name = "-".join(map(str, version))
            runs: dict[str, Sequence[Sequence[str]]] = {
                "states": [[state] for state in _STATES],
                "twice": [_SAME, _SAME],
                "heartbeats": _HEARTBEATS * [["alive"]],
            }
            for what, values in runs.items():
                topic = site.topic(f"equal.{what}.{name}")
                acknowledged = [
                    value for each in values for value in _run(site, bootstrap_of(kproxy), version, topic, each)
                ]
                outcome += _compared(site, topic, values, acknowledged)
    return outcome


def orderly_restart(site: Site) -> Outcome:
    """A script of 20 equal records is run, kproxy stopped and started, the script run again: 40 are written.

    Takes for granted: default options, the same instance.id, a direct connection.
    """
    outcome = Outcome(0, 0, 0, 0, 0)
    for version in _VERSIONS:
        name = "-".join(map(str, version))
        topic = site.topic(f"restart.{name}")
        acknowledged = []
        with site.wire():
            for _ in range(2):
                with site.kproxy(f"restart-{name}") as kproxy:
                    acknowledged += _run(site, bootstrap_of(kproxy), version, topic, _SAME)
        outcome += _compared(site, topic, [_SAME, _SAME], acknowledged)
    return outcome


def _run(site: Site, bootstrap: str, version: tuple[int, ...], topic: str, values: Sequence[str]) -> list[str]:
    """A process that sends, waits for the responses, closes its producer and ends; the values acknowledged."""
    job = {"bootstrap": bootstrap, "options": {"api_version": version, "client_id": "states", "acks": "all"}}
    with site.client(KAFKA_PYTHON_OF_2019, job) as client:
        client.command({"topic": topic, "values": list(values), "key": None, "timestamp": None})
        report: dict[str, Any] = client.report()
        client.end()
    return list(report["acknowledged"])


def _compared(site: Site, topic: str, values: Sequence[Sequence[str]], acknowledged: list[str]) -> Outcome:
    log = [record.value.decode() for record in site.log(topic)]
    return compare([value for each in values for value in each], acknowledged, log)
