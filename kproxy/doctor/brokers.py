"""Checks of the brokers: whether they can be reached, what they are, and what time it is there."""

from collections.abc import Iterator
from typing import Final

from kproxy.codec.messages import ApiKey
from kproxy.doctor.examined import Examined
from kproxy.doctor.findings import Finding, fail, listed, ok, skipped, warn
from kproxy.proxy.routing import Address

_TRANSACTION_VERSION: Final = "transaction.version"
#: KIP-890's second part: the broker knows a late batch of a transaction that has ended.
_SAFE_TRANSACTIONS: Final = 2
_TRANSACTION_VERSION_SINCE: Final = 4
#: Record format v2 (KIP-98).
_FIRST_V2: Final = 3
_WARN_SKEW_MS: Final = 1_000
_FAIL_SKEW_MS: Final = 60_000


def bootstrap(examined: Examined) -> Iterator[Finding]:
    """Each of bootstrap.servers."""
    gone = {address: error for address, error in examined.bootstrap.items() if error is not None}
    advice = "check bootstrap.servers, the brokers, and the way to them (name, firewall, TLS, login)"
    for address, error in gone.items():
        if len(gone) == len(examined.bootstrap):
            yield fail(_named(address, error), advice)
        else:
            yield warn(_named(address, error), f"others answer, but kproxy has one bootstrap server less; {advice}")
    if not gone:
        yield ok(f"reached: {listed(examined.bootstrap)}")


def _named(address: Address, error: str) -> str:
    """The error, with the address once."""
    return error if str(address) in error else f"{address}: {error}"


def advertised(examined: Examined) -> Iterator[Finding]:
    """Each broker at the address that it advertises: kproxy relays to these, not to bootstrap.servers."""
    if not examined.brokers:
        yield skipped("no broker returned the list of brokers")
        return
    for broker in examined.brokers:
        if broker.error is not None:
            yield fail(
                f"broker {broker.node_id}, as advertised: {_named(broker.address, broker.error)}",
                "kproxy cannot use its partitions: advertised.listeners must be an address that this host reaches",
            )
    if len(examined.reached) == len(examined.brokers):
        yield ok(f"reached as advertised: {listed(broker.address for broker in examined.brokers)}")


def releases(examined: Examined) -> Iterator[Finding]:
    """What the brokers are, by what they serve."""
    if not examined.reached:
        yield skipped("no broker answers")
        return
    for broker in examined.reached:
        produce = broker.versions.get(ApiKey.PRODUCE, (0, 0))[1]
        if ApiKey.INIT_PRODUCER_ID not in broker.versions or produce < _FIRST_V2:
            yield fail(
                f"broker {broker.node_id} is like Kafka {broker.release}: it knows neither producer ids nor record "
                "format v2",
                "kproxy needs Kafka 0.11 or later, better 2.5 or later",
            )
    found = sorted({broker.release for broker in examined.reached})
    if len(found) > 1:
        each = listed(f"{broker.node_id}: {broker.release}" for broker in examined.reached)
        yield warn(f"brokers are of several releases ({each})", "end the upgrade; until then clients see the oldest")
    else:
        yield ok(f"like Kafka {found[0]}")


def transactions(examined: Examined) -> Iterator[Finding]:
    """The feature that protects transactions which the broker decides; kproxy's own do not need it."""
    if not examined.reached:
        yield skipped("no broker answers")
        return
    levels = {broker.features.get(_TRANSACTION_VERSION, 0) for broker in examined.reached}
    newest = max(int(broker.release.split(".")[0]) for broker in examined.reached)
    level = min(levels)
    if newest >= _TRANSACTION_VERSION_SINCE and level < _SAFE_TRANSACTIONS:
        yield warn(
            f"{_TRANSACTION_VERSION} is {level}: a late batch of an ended transaction can hang in a partition",
            f"kafka-features.sh upgrade --feature {_TRANSACTION_VERSION}={_SAFE_TRANSACTIONS}",
        )
    else:
        yield ok(f"{_TRANSACTION_VERSION} is {level}" if level else f"no {_TRANSACTION_VERSION} before Kafka 4.0")


def clock(examined: Examined) -> Iterator[Finding]:
    """How far this host's clock and the controller's are apart."""
    skew = examined.clock
    if skew is None:
        yield skipped("the brokers do not report their time (KRaft does, to a user with Describe on the cluster)")
        return
    off = max(abs(skew.ahead_ms) - skew.uncertain_ms, 0)
    where = "ahead of" if skew.ahead_ms > 0 else "behind"
    found = f"the controller's clock is {abs(skew.ahead_ms)} ms {where} this host's (known to {skew.uncertain_ms} ms)"
    advice = "let both follow NTP: kproxy takes ages and time-outs of transactions from the brokers' timestamps"
    if off > _FAIL_SKEW_MS:
        yield fail(found, advice)
    elif off > _WARN_SKEW_MS:
        yield warn(found, advice)
    else:
        yield ok(found)
