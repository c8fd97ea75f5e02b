"""Balancers between clients and kproxy, which end TCP: the end of a connection says nothing of what a client read."""

import time
from contextlib import ExitStack
from typing import Any, Final

from verification.network.balancer import Balancer
from verification.network.cases.librdkafka import at_the_end, config_of
from verification.network.clients import KAFKA_PYTHON_OF_2019, LIBRDKAFKA
from verification.network.outcome import Outcome, compare
from verification.network.site import Site, running

__all__ = ["fleet", "restarted_balancer"]

_LOST: Final = 0.03
_FIRST_MS: Final = 1_700_000_000_000
_PATIENCE_S: Final = 180.0


def restarted_balancer(site: Site) -> Outcome:
    """A client without timestamps behind a balancer that loses 3 % of the responses and is restarted under load.

    Takes for granted: ``clean.close.window.ms`` is declared, and longer than a client retries; the values differ.
    """
    topic, parts = site.topic("balancer"), 4
    values = [[str(number) for number in range(part * 800, (part + 1) * 800)] for part in range(parts)]
    acknowledged: list[int] = []
    with site.wire(), Balancer(_LOST) as balancer:
        more = {**balancer.options, "clean-close-window-ms": "120000"}
        kproxy = site.make_kproxy("balancer", more, advertised=balancer.ports)
        balancer.serve(kproxy)
        options = {"api_version": (0, 9), "client_id": "balanced", "acks": "all", "retries": 1000, "batch_size": 200}
        job = {"bootstrap": balancer.bootstrap, "options": options}
        with running(kproxy), site.client(KAFKA_PYTHON_OF_2019, job) as client:
            for part, each in enumerate(values):
                client.command({"topic": topic, "values": each, "key": None, "timestamp": None})
                if part % 2:
                    time.sleep(0.2)
                    balancer.restart()
                acknowledged += map(int, client.report(seconds=_PATIENCE_S)["acknowledged"])
            client.end()
        dropped = balancer.dropped
    log = [int(record.value) for record in site.log(topic)]
    return compare(range(parts * 800), acknowledged, log, faults=_lost_enough(dropped))


def fleet(site: Site) -> Outcome:
    """librdkafka with its defaults behind a balancer that spreads connections over three kproxies, and loses 3 %.

    Takes for granted: ``fleet.retries.enable`` on all, clocks that agree, an own timestamp for each record.
    """
    topic, count = site.topic("fleet"), 10_000
    with site.wire(), Balancer(_LOST) as balancer, ExitStack() as stack:
        more = {**balancer.options, "fleet-retries-enable": "true"}
        kproxies = [site.make_kproxy(f"fleet-{n}", more, advertised=balancer.ports) for n in range(3)]
        for kproxy in kproxies:
            stack.enter_context(running(kproxy))
        balancer.serve(*kproxies)
        job: dict[str, Any] = {"topic": topic, "count": count, "per_second": 1000, "first_ms": _FIRST_MS}
        job["config"] = config_of(balancer.bootstrap, "fleet")
        with site.client(LIBRDKAFKA, job) as client:
            acknowledged = client.report(at_the_end, seconds=_PATIENCE_S)["acknowledged"]
        dropped = balancer.dropped
    log = [int(record.value) for record in site.log(topic)]
    return compare(range(count), acknowledged, log, faults=_lost_enough(dropped))


def _lost_enough(dropped: int) -> tuple[str, ...]:
    """Return a fault if too few responses were lost for the case to say anything."""
    return () if dropped >= 10 else (f"only {dropped} responses lost",)
