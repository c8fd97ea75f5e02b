"""Routes that are cut at the moment at which it matters what a client has received."""

import time
from typing import Any, Final

from verification.network.clients import KAFKA_PYTHON_OF_2019
from verification.network.line import Line, Way, client_of
from verification.network.outcome import Outcome, compare
from verification.network.site import Logged, Site, bootstrap_of

__all__ = ["long_cut", "missing_ack", "overtaken", "short_cut"]

_VERSION: Final = (0, 10)
_ROUNDS: Final = 3
_UNTIL_RESET_S: Final = 1.6
_FIRST_MS: Final = 1_700_000_000_000
_PATIENCE_S: Final = 30.0
_GIVES_UP_S: Final = 24.0
_HEALED_S: Final = 26.0
_ONE_WAY_S: Final = 0.05
_SOON_S: Final = 3.0
_HEALED_SOON_S: Final = (4.0, 5.0)
_LONG: Final = 20_000
"""Bytes of a value that gets a request of its own: it takes the kernel several round trips to send five again."""


def missing_ack(site: Site) -> Outcome:
    """A client reads the success, its acknowledgement is lost, the connection is reset; its next record is written.

    That record has an equal key and value and another timestamp, and comes over a new connection, three times.

    Takes for granted: default options, a direct connection, timestamps that the client sets.
    """
    topic = site.topic("missing-ack")
    sent: list[Logged] = []
    acknowledged: list[Logged] = []
    with site.wire() as wire, site.kproxy("missing-ack") as kproxy:
        job = {
            "bootstrap": bootstrap_of(kproxy),
            "options": {"api_version": _VERSION, "client_id": "sensor", "retries": 20},
        }
        with site.client(KAFKA_PYTHON_OF_2019, job) as client:

            def send() -> None:
                sent.append(Logged(b"door", b"open", _FIRST_MS + 1000 * len(sent)))
                client.command(_command(topic, sent[-1]))
                acknowledged.extend(sent[-1:] if client.report()["acknowledged"] else ())

            send()
            for _ in range(_ROUNDS):
                wire.tell(lambda line: line.cut_after(Way.RESPONSES))
                send()
                wire.wait(lambda line: line.is_cut, _PATIENCE_S)
                time.sleep(_UNTIL_RESET_S)
                wire.reset()
                wire.tell(lambda line: line.heal())
                send()
            client.end()
    return compare(sent, acknowledged, site.log(topic))


def long_cut(site: Site) -> Outcome:
    """The route is cut as a request arrives, and for longer than kproxy waits for acknowledgements: one copy.

    The client gives the request up after 24 s, and its retry arrives when the route is healed, after 26 s; kproxy has
    ended the connection before, 20 s after it wrote the response.

    Takes for granted: default options, a direct connection, a client that gives up later than kproxy.
    """
    return _cut(site, "long-cut", _GIVES_UP_S, _HEALED_S)


def short_cut(site: Site) -> Outcome:
    """The same, where the client gives up after 3 s, and kproxy can't see that when the retry comes: one copy.

    Takes for granted: default options, a direct connection, timestamps that the client sets.
    """
    found = [_cut(site, f"short-cut.{number}", _SOON_S, healed_s) for number, healed_s in enumerate(_HEALED_SOON_S)]
    return sum(found[1:], found[0])


def _cut(site: Site, name: str, gives_up_s: float, healed_s: float) -> Outcome:
    topic = site.topic(name)
    options = {
        "api_version": _VERSION,
        "client_id": "sensor",
        "retries": 1000,
        "request_timeout_ms": int(gives_up_s * 1000),
        "reconnect_backoff_max_ms": 500,
    }
    sent = [Logged(b"door", value, _FIRST_MS) for value in (b"open", b"closed")]
    with (
        site.wire() as wire,
        site.kproxy(name) as kproxy,
        site.client(KAFKA_PYTHON_OF_2019, {"bootstrap": bootstrap_of(kproxy), "options": options}) as client,
    ):
        client.command(_command(topic, sent[0]))
        first = client.report()["acknowledged"]
        wire.tell(lambda line: line.cut_after(Way.REQUESTS))
        client.command(_command(topic, sent[1]))
        wire.wait(lambda line: line.is_cut, _PATIENCE_S)
        time.sleep(healed_s)
        wire.tell(lambda line: line.heal())
        second = client.report()["acknowledged"]
        client.end()
    log = [record.value.decode() for record in site.log(topic)]
    return compare([record.value.decode() for record in sent], [*first, *second], log)


def overtaken(site: Site) -> Outcome:
    """All that one connection carries is lost; its client gives up after 3 s, and repeats it over another: one copy.

    Then the network heals, and the kernel of the first connection sends five requests again that the client has
    repeated, and then its end.

    Takes for granted: default options, a direct connection that was used before.
    """
    topic = site.topic("overtaken")
    options = {
        "api_version": _VERSION,
        "client_id": "sensor",
        "retries": 1000,
        "request_timeout_ms": int(_SOON_S * 1000),
        "reconnect_backoff_max_ms": 200,
        "max_in_flight_requests_per_connection": 5,
    }
    values = [f"{number}".ljust(_LONG) for number in range(6)]
    with (
        site.wire(Line(_ONE_WAY_S)) as wire,
        site.kproxy("overtaken") as kproxy,
        site.client(KAFKA_PYTHON_OF_2019, {"bootstrap": bootstrap_of(kproxy), "options": options}) as client,
    ):

        def send(some: list[str]) -> list[str]:
            client.command({"topic": topic, "values": some, "key": "door", "timestamp": _FIRST_MS})
            acknowledged: list[str] = client.report()["acknowledged"]
            return acknowledged

        acknowledged = send(values[:1])
        old = wire.tell(lambda line: line.connections)
        wire.tell(lambda line: setattr(line, "losing", lambda way, segment: client_of(way, segment) in old))
        acknowledged += send(values[1:])
        wire.tell(lambda line: line.heal())
        wire.wait(lambda line: not old & line.connections, _PATIENCE_S)
        client.end()
    return compare(values, acknowledged, [record.value.decode() for record in site.log(topic)])


def _command(topic: str, record: Logged) -> dict[str, Any]:
    assert record.key is not None
    return {
        "topic": topic,
        "values": [record.value.decode()],
        "key": record.key.decode(),
        "timestamp": record.timestamp,
    }
