"""Checks of options: each is fine alone, and yet they contradict each other, the brokers, or this host."""

from collections.abc import Iterator
from typing import Final

from kproxy.config import Config
from kproxy.config.os_limits import open_files_for
from kproxy.config.values import AUTO
from kproxy.doctor.examined import Examined
from kproxy.doctor.findings import Finding, fail, ok, skipped, warn
from kproxy.proxy.coordinator_rules import Home

#: Kubernetes' terminationGracePeriodSeconds, and systemd's TimeoutStopSec is longer.
_KILLED_AFTER_MS: Final = 30_000


def times(examined: Examined) -> Iterator[Finding]:
    """Options of time among each other."""
    found = list(_contradictions(examined.config))
    yield from found or [ok("no options of time contradict each other")]


def _contradictions(config: Config) -> Iterator[Finding]:
    window, patience = config.retry_window_ms, config.clients_request_timeout_ms
    if window <= patience:
        yield fail(
            f"retry.window.ms = {window} is not longer than clients.request.timeout.ms = {patience}",
            "a client that waits out its time-out and repeats is not recognised: raise retry.window.ms",
        )
    if window < config.delivery_timeout_ms:
        yield warn(
            f"retry.window.ms = {window} is shorter than delivery.timeout.ms = {config.delivery_timeout_ms}",
            "kproxy may write a batch when its client's retry is no longer compared: make the window as long",
        )
    if config.clean_close_window_ms != AUTO and config.clean_close_window_ms > window:
        yield warn(
            f"clean.close.window.ms = {config.clean_close_window_ms} exceeds retry.window.ms = {window}",
            "an end in good order says more than a broken one, so its window is the shorter one",
        )
    if config.upstream_request_timeout_ms >= patience:
        yield warn(
            f"upstream.request.timeout.ms = {config.upstream_request_timeout_ms} is not shorter than "
            f"clients.request.timeout.ms = {patience}",
            "clients give up before kproxy knows that a broker is lost: lower it",
        )
    if config.shutdown_grace_ms >= _KILLED_AFTER_MS:
        yield warn(
            f"shutdown.grace.ms = {config.shutdown_grace_ms} is not under the {_KILLED_AFTER_MS} ms that Kubernetes "
            "waits before it kills",
            "lower it, or raise terminationGracePeriodSeconds (systemd: TimeoutStopSec) above it",
        )
    if config.on_offset_commit and config.on_offset_commit_timeout_ms > config.transaction_max_timeout_ms:
        yield fail(
            f"on.offset.commit.timeout.ms = {config.on_offset_commit_timeout_ms} exceeds transaction.max.timeout.ms = "
            f"{config.transaction_max_timeout_ms}",
            "such a transaction is refused: raise transaction.max.timeout.ms",
        )


def expiration(examined: Examined) -> Iterator[Finding]:
    """Whether brokers remember a producer id for as long as a retry may come."""
    config = examined.config
    kept = examined.broker_numbers("producer.id.expiration.ms")
    if not kept:
        yield skipped("the brokers do not report producer.id.expiration.ms (from Kafka 3.4 on, with DescribeConfigs)")
        return
    shortest, needed = min(kept.values()), config.retry_window_ms + config.delivery_timeout_ms
    if shortest <= needed:
        yield fail(
            f"brokers forget producer ids after {shortest} ms (producer.id.expiration.ms); retry.window.ms and "
            f"delivery.timeout.ms together are {needed}",
            "a retry after that is not recognised as a duplicate: raise it at the brokers",
        )
    else:
        yield ok(f"brokers remember producer ids for {shortest} ms, longer than the {needed} ms in which retries come")


def transaction_timeouts(examined: Examined) -> Iterator[Finding]:
    """Whether a producer may ask for the same time-out wherever its transactions are decided."""
    ours = examined.config.transaction_max_timeout_ms
    theirs = examined.broker_numbers("transaction.max.timeout.ms")
    if not theirs:
        yield skipped("the brokers do not report transaction.max.timeout.ms")
    elif all(rule.home is Home.KPROXY for rule in examined.config.transactions_home):
        yield ok(f"kproxy decides all transactions: at most {ours} ms")
    elif ours > min(theirs.values()):
        yield warn(
            f"transaction.max.timeout.ms = {ours} exceeds the brokers' {min(theirs.values())}",
            "producers whose transactions the broker decides are refused above that: make them equal",
        )
    else:
        yield ok(f"at most {ours} ms here, {min(theirs.values())} at the brokers")


def sizes(examined: Examined) -> Iterator[Finding]:
    """Options of size among each other and against the brokers'."""
    config, found = examined.config, 0
    limits = examined.broker_numbers("socket.request.max.bytes")
    for node_id, size in limits.items():
        if config.max_frame_bytes > size:
            found += 1
            yield warn(
                f"max.frame.bytes = {config.max_frame_bytes} exceeds broker {node_id}'s socket.request.max.bytes = "
                f"{size}",
                f"a request between the two ends kproxy's connection to the broker: set max.frame.bytes to {size}",
            )
            break
    for name, size in (("fetch.max.bytes", config.fetch_max_bytes), ("recovery.max.bytes", config.recovery_max_bytes)):
        if size < config.max_message_bytes:
            found += 1
            yield warn(
                f"{name} = {size} is less than one batch, max.message.bytes = {config.max_message_bytes}",
                f"raise {name}",
            )
    if not limits:
        yield skipped("the brokers do not report socket.request.max.bytes, which max.frame.bytes must not exceed")
    elif not found:
        yield ok("sizes fit each other and the brokers'")


def open_files(examined: Examined) -> Iterator[Finding]:
    """Whether this host lets kproxy have as many connections as max.connections says."""
    count = examined.config.max_connections
    hard, wanted = examined.open_files[1], open_files_for(count)
    if hard < 0 or hard >= wanted:
        yield ok(
            f"max.connections = {count} needs {wanted} open files, {'any number' if hard < 0 else hard} are allowed"
        )
    else:
        yield warn(
            f"max.connections = {count} needs {wanted} open files, here at most {hard} are allowed",
            f"raise the limit for kproxy (LimitNOFILE={wanted}, ulimit -Hn), or set max.connections to "
            f"{max((hard - open_files_for(0)) // 2, 1)}",
        )


def running(examined: Examined) -> Iterator[Finding]:
    """What a kproxy that runs says of itself."""
    status = examined.running
    if status is None:
        yield skipped("no kproxy answers at http or control.socket")
    elif not status["ready"]:
        yield fail(f"kproxy {status['version']} runs, and is not ready: {'; '.join(status['reasons'])}", "see its log")
    else:
        yield ok(f"kproxy {status['version']} runs as {status['instance_id']} and is ready")


def transaction_log(examined: Examined) -> Iterator[Finding]:
    """Whether a kproxy that runs has found the transaction log without records that it had."""
    if examined.running is None:
        yield skipped("no kproxy answers at http or control.socket")
        return
    losses = examined.running.get("transactions", {}).get("log_losses", 0)
    if losses:
        yield fail(
            f"the transaction log has lost records {losses} times since kproxy started: committed data may be hidden",
            "set unknown.producer.ids = wait, and see docs/operations.md: the transaction log is lost",
        )
    else:
        yield ok("the running kproxy has not seen the transaction log lose records")
