"""Tastes: what runs are made of, and the plan that a seed makes of one."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from verification.simulation.contents import UNLABELLED, Labels
from verification.simulation.plan import (
    BROKERS,
    BUSY_SECONDS,
    FAULTS,
    GZIP,
    LOG_APPEND_TIME,
    OLD,
    PARTITIONS,
    RENEWING,
    ROUTES,
    ClientPlan,
    FaultPlan,
    Plan,
    Relay,
    Send,
    Settings,
)
from verification.simulation.weather import FAR, NEAR, Weather

#: A client of more requests in flight gives up many at its time-outs, and each may be late: through something that
#: ends TCP kproxy can't see which responses it has then.
_ASSUMED_DEPTH: Final = 5
_FEW_TRIES: Final = 2
MOSTLY: Final = 0.9
#: Clients with so many requests in flight send as fast as they can, and more often.
_DEEP: Final = 50
_DEEP_TIMES: Final = 4
_DEEP_GAPS: Final = (0.0, 0.0, 0.0, 0.01, 0.5)
LAST_SEQUENCE: Final = 2**31 - 1
_TRACED: Final = (("trace", b"1"),)
#: None, one for all records, and such that records with one value are others by their key or headers.
LABELS: Final = (
    UNLABELLED,
    UNLABELLED,
    Labels((b"k",), (_TRACED,)),
    Labels((None, b"k", b""), ((), _TRACED)),
    Labels((b"k", b"k", b"k", b"l"), (_TRACED, _TRACED, (("trace", None), ("span", b"")))),
)


@dataclass(frozen=True, slots=True)
class Taste:
    """The ranges that runs are drawn from; a scenario is a taste that is suited to show one thing."""

    faults: tuple[str, ...] = FAULTS
    fault_count: tuple[int, int] = (5, 12)
    clients: tuple[int, int] = (2, 5)
    sends: tuple[int, int] = (6, 24)
    depths: tuple[int, ...] = (1, 1, 2, 5)
    versions: tuple[int, ...] = (0, 1, 2, 3, 5, 7, 8, 9)
    #: The share of a client's values that are equal to earlier ones, in [0, 1].
    equal: float = 0.2
    #: The share of clients that have the identity of the one before.
    twins: float = 0.25
    regroup: tuple[str, ...] = ("same", "same", "split", "join")
    acks: tuple[int, ...] = (-1, -1, -1, -1, 1, 0)
    batch_sizes: tuple[int, ...] = (1, 1, 2, 4)
    tries: tuple[int, ...] = (2, 12, 12)
    instances: tuple[int, ...] = (1, 1, 2)
    gaps: tuple[float, ...] = (0.0, 0.05, 0.5, 1.5)
    closes_on_timeout: tuple[bool, ...] = (True, True, False)
    repeats_whole: tuple[bool, ...] = (False, False, True)
    renames: tuple[bool, ...] = (False, False, True)
    #: Of clients with one request in flight.
    ready: tuple[bool, ...] = (False, False, True)
    #: Of clients with more, that keep the order of what they repeat.
    in_rounds: tuple[bool, ...] = (False, True)
    #: Of client.ids.
    renews_timestamps: tuple[bool, ...] = (False, False, False, True)
    #: Of kproxy.
    options: tuple[tuple[str, Any], ...] = ()
    #: Of kproxy, in ms; above 0 it says that something in between ends TCP, so that a FIN is no evidence.
    clean_close_windows: tuple[int, ...] = (0, 0, 10_000)
    #: Beside these a part of the runs has mostly equal records.
    mostly_equal: float = 0.0
    clocks_ms: tuple[int, ...] = (1,)
    closes_each: tuple[bool, ...] = (False,)
    relays: tuple[Relay, ...] = (Relay.NONE,)
    weathers: tuple[Weather, ...] = (NEAR,)
    #: Sequence numbers begin here: in some runs so that they wrap.
    first_sequences: tuple[int, ...] = (0, 0, 0, LAST_SEQUENCE - 3, LAST_SEQUENCE - 25)
    request_timeouts: tuple[float, ...] = (6.0, 6.0, 2.0)
    topics: tuple[Settings, ...] = ((), (), (), (), LOG_APPEND_TIME, GZIP)
    #: The age of records when they are sent, in seconds.
    ages: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0, OLD)
    #: The share of clients that write to a partition that comes into being later, if ever, in [0, 1].
    pioneers: float = 0.1
    #: Clients go from one instance to another.
    fails_over: bool = False
    #: Keys and headers, of client.ids.
    labels: tuple[Labels, ...] = LABELS
    #: Of clients that close a connection when a request times out.
    keeps_connections: tuple[bool, ...] = (False, False, True)
    #: Clients that number their batches themselves.
    numbered: tuple[bool, ...] = (False,)
    #: Of these: the form of batches under a raised epoch; empty: it is never raised.
    raises: tuple[str, ...] = ("",)


#: Gateways between which clients move. Instances compare times of theirs: clocks do not jump.
FLEET: Final = Taste(
    faults=tuple(fault for fault in FAULTS if fault != "clock"),
    instances=(2, 2, 3),
    twins=0.0,
    fails_over=True,
    options=(("fleet_retries_enable", True), ("fleet_patience_ms", 300)),
)


def _wide(taste: Taste) -> Taste:
    return replace(
        taste,
        faults=taste.faults + ROUTES,
        depths=(1, 1, 2, 5, 50, 1000),
        clean_close_windows=(0, 0, 60_000),
        mostly_equal=0.5,
        clocks_ms=(1, 1, 1000),
        closes_each=(False, False, True),
        relays=(Relay.NONE, Relay.NONE, Relay.NONE, Relay.NONE, Relay.NAMED, Relay.UNKNOWN),
        weathers=(NEAR, NEAR, FAR),
    )


#: Networks and clients beyond a server room: cut routes, balancers, latency, a thousand requests in flight,
#: one process for each record, clocks that show seconds, and mostly equal records.
WIDE: Final = _wide(Taste())
WIDE_FLEET: Final = _wide(FLEET)


def with_numbers(taste: Taste) -> Taste:
    """Make two in three clients idempotent, half of which raise epochs."""
    return replace(taste, numbered=(True, True, False), raises=("", "", "", "same", "split", "join"))


def make_plan(seed: int, taste: Taste) -> Plan:
    """The plan of a seed."""
    rng = Random(f"plan {seed}")
    if taste.mostly_equal and Random(f"equal {seed}").random() < taste.mostly_equal:
        taste = replace(taste, equal=MOSTLY)
    instances = rng.choice(taste.instances)
    clients: list[ClientPlan] = []
    for number in range(rng.randint(*taste.clients)):
        clients.append(_client(rng, taste, number, instances, clients[-1] if clients else None))
    faults = [
        FaultPlan(round(rng.uniform(0.1, BUSY_SECONDS), 3), rng.choice(taste.faults), rng.random(), rng.random())
        for _ in range(rng.randint(*taste.fault_count) if taste.faults else 0)
    ]
    faults.sort(key=lambda fault: fault.time)
    plan = Plan(seed, tuple(clients), tuple(faults), instances, dict(taste.options))
    return _vary(plan, Random(f"more {seed}"), taste)


def _vary(plan: Plan, rng: Random, taste: Taste) -> Plan:
    """Draws the topic's settings, and the clocks of clients."""
    age, topic = rng.choice(taste.ages), rng.choice(taste.topics)
    clients = tuple(_pioneer(client, rng, taste) for client in plan.clients)
    if age:
        clients = tuple(replace(client, age=age) for client in clients)
    # who repeats what succeeded beside an error repeats the request as it was: else it can't be told from a new one
    clients = tuple(replace(client, regroup="same") if client.repeats_whole else client for client in clients)
    clients = tuple(replace(client, ready=_may_be_ready(client) and rng.choice(taste.ready)) for client in clients)
    rounds = Random(f"rounds {plan.seed}")
    clients = tuple(
        replace(client, in_rounds=_is_orderly(client) and rounds.choice(taste.in_rounds)) for client in clients
    )
    clients = tuple(_renewing(client, plan.seed, taste) for client in clients)
    clients = tuple(replace(client, labels=_labels(client, plan.seed, taste)) for client in clients)
    kept = Random(f"connections {plan.seed}")
    clients = tuple(
        replace(client, keeps_connections=_may_keep(client) and kept.choice(taste.keeps_connections))
        for client in clients
    )
    numbers = Random(f"numbers {plan.seed}")
    clients = tuple(_numbered(client) if numbers.choice(taste.numbered) else client for client in clients)
    raises = Random(f"raises {plan.seed}")
    clients = tuple(_raising(client, raises.choice(taste.raises)) if client.numbered else client for client in clients)
    if taste.fails_over:
        clients = tuple(replace(client, instances=plan.instances) for client in clients)
    plan = replace(plan, clients=clients, topic=topic, expiry_check_ms=1000 if age else 600_000)
    return _habits(plan, Random(f"habits {plan.seed}"), taste)


def _numbered(client: ClientPlan) -> ClientPlan:
    """An idempotent client: it repeats batches as they were, and in order, with at most five in flight."""
    return replace(
        client,
        numbered=True,
        magic=2,
        version=max(client.version, 3),
        acks=-1,
        depth=min(client.depth, 5),
        regroup="same",
        repeats_whole=False,
        shuffles=False,
        ready=False,
        in_rounds=False,
        renews_timestamps=False,
        age=0.0,
    )


def _raising(client: ClientPlan, raises: str) -> ClientPlan:
    """One that raises its epoch closes a connection when a request times out, as librdkafka and Java do."""
    return replace(client, raises=raises, closes_on_timeout=True) if raises else client


def _may_be_relayed(client: ClientPlan) -> bool:
    return client.depth <= _ASSUMED_DEPTH or client.closes_on_timeout


def _habits(plan: Plan, rng: Random, taste: Taste) -> Plan:
    """Chooses the network, how clients use connections, and which of that kproxy's options declare."""
    window = rng.choice(taste.clean_close_windows)
    clocks: dict[str, int] = {}
    closes: dict[str, bool] = {}
    relays: dict[str, Relay] = {}
    for client in plan.clients:  # two programs of one name are of one kind
        clocks.setdefault(client.client_id, rng.choice(taste.clocks_ms))
        closes.setdefault(client.client_id, rng.choice(taste.closes_each))
        relays.setdefault(client.client_id, rng.choice(taste.relays))
    clients = tuple(
        replace(
            client,
            clock_ms=1 if client.in_rounds else clocks[client.client_id],
            closes_each=closes[client.client_id] and _may_close_each(client),
            relay=relays[client.client_id] if _may_be_relayed(client) else Relay.NONE,
        )
        for client in plan.clients
    )
    return replace(
        plan,
        clients=clients,
        options={**plan.options, **({"clean_close_window_ms": window} if window else {})},
        weather=rng.choice(taste.weathers),
        first_sequence=rng.choice(taste.first_sequences),
    )


def _labels(client: ClientPlan, seed: int, taste: Taste) -> Labels:
    """The keys and headers of a client.id: two programs of one name write equal records."""
    labels = Random(f"labels {seed} {client.client_id}").choice(taste.labels)
    return labels if client.magic > 1 else Labels(labels.keys)


def _renewing(client: ClientPlan, seed: int, taste: Taste) -> ClientPlan:
    """Decides whether a client renews timestamps: all with its client.id do, or none.

    A client whose retries kproxy recognises by their timestamps does not, nor one that has a request ready: that is
    librdkafka, and those that renew timestamps make their next request after the response. kproxy does not keep the
    order for one that does both (fleet seed 202956).
    """
    renews = Random(f"timestamps {seed} {client.client_id}").choice(taste.renews_timestamps)
    if not renews or client.in_rounds or client.ready or not client.magic:
        return client
    return replace(client, client_id=f"{RENEWING}{client.client_id}", renews_timestamps=True)


def _may_be_ready(client: ClientPlan) -> bool:
    """Clients that prepare a request ahead keep retrying (librdkafka does until message.timeout.ms)."""
    return client.depth == 1 and client.tries > _FEW_TRIES and not client.is_pioneer


def _is_orderly(client: ClientPlan) -> bool:
    """Clients that pipeline, never give up what precedes the rest, and never change partitions."""
    patient = client.tries > _FEW_TRIES and not client.shuffles
    return client.depth > 1 and client.magic > 0 and patient and not client.is_pioneer


def _may_keep(client: ClientPlan) -> bool:
    """Clients that keep connections close them after a time-out, and send only to leaders that they know.

    What they repeat goes to the leader of its partition, so a request is not repeated as a whole.
    """
    return client.closes_on_timeout and not client.repeats_whole and not client.is_pioneer


def _may_close_each(client: ClientPlan) -> bool:
    """Those that wait for responses, and have no other request ready: programs that end, or connect for each request.

    Not where each record for a partition that never comes needs many connections: they would not be done in time.
    """
    waits = bool(client.acks) and not client.ready
    return waits and not client.keeps_connections and not (client.is_pioneer and client.tries > _FEW_TRIES)


def _pioneer(client: ClientPlan, rng: Random, taste: Taste) -> ClientPlan:
    """A client whose second partition is one that the topic does not have at first."""
    if rng.random() >= taste.pioneers or client.depth >= _DEEP:
        return client
    first = client.sends[0].batches[0][0]
    sends = tuple(
        replace(
            send,
            batches=tuple((at if at == first else first % BROKERS + PARTITIONS, values) for at, values in send.batches),
        )
        for send in client.sends
    )
    return replace(client, sends=sends)


def _client(rng: Random, taste: Taste, number: int, instances: int, before: ClientPlan | None) -> ClientPlan:
    version, depth = rng.choice(taste.versions), rng.choice(taste.depths)
    magic = 2 if version >= 3 else 1 if version == 2 and rng.random() < 0.8 else 0
    twin = before is not None and rng.random() < taste.twins
    acks = rng.choice(taste.acks)
    closes = rng.choice(taste.closes_on_timeout)
    patience = rng.choice(taste.request_timeouts)
    if not closes:
        patience = max(taste.request_timeouts)  # a repeat before timeout_ms looks like one more in flight
    return ClientPlan(
        number=number,
        client_id=before.client_id if twin and before else f"c{number}",
        host=before.host if twin and before else f"10.0.0.{number + 1}",
        instance=before.instance if twin and before else rng.randrange(instances),
        version=version,
        magic=magic,
        codec=rng.choice((0, 0, 1, 2 if magic else 1)),
        depth=depth,
        acks=acks,
        sends=_sends(rng, taste, before if twin else None, number, depth),
        regroup=rng.choice(taste.regroup),
        repeats_whole=rng.choice(taste.repeats_whole),
        renames=rng.choice(taste.renames),
        shuffles=depth > 1 and rng.random() < 0.3,
        closes_on_timeout=closes,
        request_timeout=patience,
        tries=rng.choice(taste.tries),
    )


def _sends(rng: Random, taste: Taste, twin: ClientPlan | None, number: int, depth: int) -> tuple[Send, ...]:
    first = rng.randrange(BROKERS)
    partitions = [first, first + BROKERS][: rng.randint(1, 2)]
    if twin is not None:
        partitions = sorted({index for send in twin.sends for index, _ in send.batches})
    values = [value for send in twin.sends for _, batch in send.batches for value in batch] if twin else []
    sends = []
    gaps, count = taste.gaps, rng.randint(*taste.sends)
    if depth >= _DEEP:
        gaps, count = _DEEP_GAPS, count * _DEEP_TIMES
    for nth in range(count):
        batches = []
        for index in partitions if rng.random() < 0.4 else [rng.choice(partitions)]:
            batch = []
            for at in range(rng.choice(taste.batch_sizes)):
                value = b"%d.%d.%d.%d" % (number, nth, index, at)
                if values and rng.random() < taste.equal:
                    value = rng.choice(values[-6:])
                values.append(value)
                batch.append(value)
            batches.append((index, tuple(batch)))
        sends.append(Send(rng.choice(gaps), tuple(batches)))
    return tuple(sends)
