"""Checks of topics: kproxy's own, replication, and how long records may be."""

from collections.abc import Iterator

from kproxy.config import Config
from kproxy.doctor.examined import Examined
from kproxy.doctor.findings import Finding, fail, listed, ok, skipped, warn
from kproxy.net.fleet_log import TOPIC as FLEET
from kproxy.net.fleet_log import fleet_plan
from kproxy.net.lane_topic import TOPIC as LANES
from kproxy.net.lane_topic import lane_plan
from kproxy.net.own_topic import TopicPlan
from kproxy.net.txn.log_topic import transaction_plan
from kproxy.proxy.fleet_view import MISSED

_MIN_ISR = "min.insync.replicas"
_RETENTION = "retention.ms"
_UNLIMITED = "-1"


def plans(config: Config) -> list[TopicPlan]:
    """The topics that kproxy has or makes."""
    return [
        *([lane_plan(config)] if config.crash_recovery_enable else []),
        transaction_plan(config),
        *([fleet_plan(config)] if config.fleet_announce_interval_ms else []),
    ]


def own_topics(examined: Examined) -> Iterator[Finding]:
    """Whether kproxy's own topics keep what is noted in them."""
    if not examined.brokers:
        yield skipped("no broker answers")
        return
    for plan in plans(examined.config):
        if plan.name in examined.topics:
            found = [*_replicas(examined, plan), *_settings(examined, plan)]
            yield from found or [ok(f"{plan.name} has {plan_of(examined, plan)}")]
        else:
            yield _not_made(examined, plan)


def plan_of(examined: Examined, plan: TopicPlan) -> str:
    """How a topic is in fact: 16 partitions, 3 replicas, 2 in sync at least."""
    topic = examined.topics[plan.name]
    least = examined.settings.get(plan.name, {}).get(_MIN_ISR, "?")
    return f"{len(topic.partitions)} partitions, {_fewest(examined, plan)} replicas, {_MIN_ISR} {least}"


def _fewest(examined: Examined, plan: TopicPlan) -> int:
    return min((len(row.replica_nodes) for row in examined.topics[plan.name].partitions), default=0)


def _not_made(examined: Examined, plan: TopicPlan) -> Finding:
    brokers = len(examined.brokers)
    if brokers < plan.replicas and not plan.optional:
        return warn(
            f"{plan.name} is not made yet, and would have {brokers} of {plan.replicas} replicas, one for each broker",
            f"add brokers, or lower {plan.replicas_option} and accept that what is noted may be lost with a broker",
        )
    return ok(f"{plan.name} is not made yet; kproxy makes it with {plan.replicas} replicas when it needs it")


def _replicas(examined: Examined, plan: TopicPlan) -> Iterator[Finding]:
    fewest = _fewest(examined, plan)
    if fewest < plan.replicas and not plan.optional:
        yield warn(
            f"{plan.name} has {fewest} replicas, {plan.replicas_option} says {plan.replicas}",
            "the loss of a broker may stop it, or lose records: add replicas with kafka-reassign-partitions.sh",
        )
    text = examined.settings.get(plan.name, {}).get(_MIN_ISR, "")
    if not text.isdigit():
        return
    least, wanted = int(text), min(plan.min_isr, fewest)
    if least < wanted:
        yield warn(
            f"{plan.name} has {_MIN_ISR} {least}: what is acknowledged may be on {least} broker alone",
            f"kafka-configs.sh --alter --entity-type topics --entity-name {plan.name} --add-config {_MIN_ISR}={wanted}",
        )
    elif least >= fewest > 1:
        yield warn(
            f"{plan.name} has {_MIN_ISR} {least} of {fewest} replicas: it stops when one broker is down",
            f"lower {_MIN_ISR} to {fewest - 1}, or add a replica",
        )
    short = [
        f"{plan.name}-{row.partition_index}"
        for row in examined.topics[plan.name].partitions
        if len(row.isr_nodes) < least
    ]
    if short:
        yield fail(
            f"{listed(short)} take no writes: fewer replicas are in sync than {_MIN_ISR} {least}",
            "bring the missing brokers back",
        )


def _settings(examined: Examined, plan: TopicPlan) -> Iterator[Finding]:
    settings = examined.settings.get(plan.name)
    if settings is None:
        yield warn(f"brokers do not report the settings of {plan.name}", f"grant DescribeConfigs on topic {plan.name}")
        return
    for name, harm in plan.wrong.items():
        if name in settings and plan.harms(name, settings[name]):
            yield fail(f"{plan.name} has {name}={settings[name]}: {harm}", f"set {name}={plan.settings.get(name)}")
    costly = [name for name in plan.costly if name in settings and plan.costs(name, settings[name])]
    if costly:
        found = ", ".join(f"{name}={settings[name]}" for name in costly)
        yield warn(f"{plan.name} has {found}: {plan.costly[costly[0]]}", _altered(plan))
    else:
        yield from _short_retention(examined.config, plan, settings.get(_RETENTION, ""))


def _altered(plan: TopicPlan) -> str:
    """How to give a topic the settings that kproxy would create it with."""
    settings = ",".join(f"{name}=[{text}]" if "," in text else f"{name}={text}" for name, text in plan.settings.items())
    return f"kafka-configs.sh --alter --entity-type topics --entity-name {plan.name} --add-config '{settings}'"


def _short_retention(config: Config, plan: TopicPlan, text: str) -> Iterator[Finding]:
    fleet_ms, lanes_ms = MISSED * config.fleet_announce_interval_ms, config.producer_state_log_retention_ms
    if plan.name == FLEET and text.isdigit() and int(text) < fleet_ms:
        yield warn(
            f"{FLEET} has {_RETENTION}={text}: instances may be missing in kproxy fleet",
            f"set {_RETENTION} to {MISSED} times fleet.announce.interval.ms, {fleet_ms}, or more",
        )
    if plan.name != LANES:
        return
    if text == _UNLIMITED:
        yield warn(f"{LANES} has {_RETENTION}={text}: entries of instances that never return stay", _altered(plan))
    elif text.isdigit() and int(text) < lanes_ms:
        yield warn(
            f"{LANES} has {_RETENTION}={text}, producer.state.log.retention.ms is {lanes_ms}: an instance that started "
            "before the topic was altered does not write its entries again in time",
            f"set producer.state.log.retention.ms to {text} at all instances, or {_RETENTION} to {lanes_ms}",
        )


def replication(examined: Examined) -> Iterator[Finding]:
    """All partitions that kproxy may see."""
    if not examined.topics:
        yield skipped("no topics are seen")
        return
    partitions = list(examined.partitions())
    lost = [name for name, row in partitions if row.leader_id < 0]
    behind = [name for name, row in partitions if row.leader_id >= 0 and len(row.isr_nodes) < len(row.replica_nodes)]
    if lost:
        yield fail(f"{len(lost)} partitions have no leader: {listed(lost)}", "bring the brokers that have them back")
    if behind:
        yield warn(
            f"{len(behind)} partitions are under-replicated: {listed(behind)}",
            "look at the brokers that are not in sync; acks=all waits for less, and less is safe",
        )
    if not lost and not behind:
        yield ok(f"all replicas of {len(partitions)} partitions are in sync")


def message_sizes(examined: Examined) -> Iterator[Finding]:
    """Whether topics take what kproxy makes of old clients' batches."""
    limit = examined.config.max_message_bytes
    brokers = examined.broker_numbers("message.max.bytes")
    topics = {name: examined.settings.get(name, {}) for name in examined.users_topics()}
    if not brokers and not any(topics.values()):
        yield skipped(f"neither topics nor brokers report their limit; kproxy's max.message.bytes is {limit}")
        return
    small: dict[str, int] = {}
    for name, settings in topics.items():
        text = settings.get("max.message.bytes", "")
        if text.isdigit() and int(text) < limit:
            small[name] = int(text)
    if small:
        yield warn(
            f"max.message.bytes is {limit}, but these topics take less: "
            f"{listed(f'{name} {size}' for name, size in sorted(small.items()))}",
            f"set kproxy's max.message.bytes to {min(small.values())}: batches of old clients are split to it",
        )
    for node_id, size in brokers.items():
        if size < limit:
            yield warn(
                f"max.message.bytes is {limit}, broker {node_id} has message.max.bytes {size}",
                f"set kproxy's max.message.bytes to {size}, for topics with no max.message.bytes of their own",
            )
            return
    unknown = [name for name, settings in topics.items() if not settings]
    if unknown:
        yield skipped(f"{len(unknown)} of {len(topics)} topics do not report their limit: {listed(unknown)}")
    elif not small:
        yield ok(f"all topics take batches of {limit} bytes")
