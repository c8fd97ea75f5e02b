"""Balancers between clients and kproxy, which end TCP: the end of a connection says nothing of what a client read."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

from verification.chaos.kproxy_process import KproxyProcess
from verification.network.balancer import Balancer
from verification.network.cases.librdkafka import at_the_end, config_of
from verification.network.clients import KAFKA_PYTHON_OF_2019, LIBRDKAFKA
from verification.network.outcome import Outcome, compare
from verification.network.site import Site, running
from verification.network.wire import Wire

__all__ = ["fleet", "restarted_balancer"]

_LOST: Final = 0.03
_FIRST_MS: Final = 1_700_000_000_000
_PATIENCE_S: Final = 180.0
_STANDS_STILL_S: Final = 6.0
_CUT_S: Final = 2.0
_PROGRAMS: Final = 2
_WAITING: Final = 100
"""Requests of the client at the end of a standstill, of about 1,000."""


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

    Two programs, one after the other. The first kproxy that answers a program stands still for 6 s, before its response
    passes, while the program sends more. Then that kproxy writes what waits, a response is lost, and the program learns
    of this 2 s later, since its route is cut. It sends all of that again, to another kproxy, since the balancer sends
    nobody to the one that stood still. The records' timestamps are 1 s apart, as of readings that are sent later.

    Takes for granted: ``fleet.retries.enable`` on all, clocks that agree, an own timestamp for each record.
    """
    count, faults = 15_000, list[str]()
    outcome = Outcome(0, 0, 0, 0, 0)
    with site.wire() as wire, Balancer(_LOST) as balancer, ExitStack() as stack:
        more = {**balancer.options, "fleet-retries-enable": "true"}
        kproxies = [site.make_kproxy(f"fleet-{n}", more, advertised=balancer.ports) for n in range(3)]
        for kproxy in kproxies:
            stack.enter_context(running(kproxy))
        for number in range(_PROGRAMS):
            topic = site.topic(f"fleet.{number}")
            job: dict[str, Any] = {"topic": topic, "count": count, "per_second": 1000, "first_ms": _FIRST_MS}
            job |= {"step_ms": 1000, "config": config_of(balancer.bootstrap, topic)}
            balancer.serve(*kproxies)
            with site.client(LIBRDKAFKA, job) as client:
                waiting = _stand_still(wire, balancer, kproxies)
                acknowledged = client.report(at_the_end, seconds=_PATIENCE_S)["acknowledged"]
            if waiting < _WAITING:
                faults.append(f"only {waiting} requests waited")
            log = [int(record.value) for record in site.log(topic)]
            outcome += compare(range(count), acknowledged, log)
        dropped = balancer.dropped
    return replace(outcome, faults=(*faults, *_lost_enough(dropped)))


def _stand_still(wire: Wire, balancer: Balancer, kproxies: Sequence[KproxyProcess]) -> int:
    """Let the kproxy that answers next stand still, and cut the client's route while it writes what waits.

    :returns: how many requests waited.
    """
    frozen = balancer.freeze_next(_PATIENCE_S)
    before = balancer.requests
    balancer.serve(*(each for each in kproxies if each is not frozen))
    time.sleep(_STANDS_STILL_S)
    waiting = balancer.requests - before
    wire.tell(lambda line: line.cut())
    frozen.resume()
    time.sleep(_CUT_S)
    wire.tell(lambda line: line.heal())
    return waiting


def _lost_enough(dropped: int) -> tuple[str, ...]:
    """Return a fault if too few responses were lost for the case to say anything."""
    return () if dropped >= 10 else (f"only {dropped} responses lost",)
