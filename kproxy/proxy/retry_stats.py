"""Counters of clients' retries, and of what was read from brokers' logs to recognise them."""

# ruff: noqa: RUF009 - these functions make a dataclasses.field, not a shared mutable default.

from dataclasses import dataclass

from kproxy.proxy.metric_fields import counter, counters, gauge


@dataclass(slots=True)
class RetryStats:
    """Retries recognised, partitions' logs read back, and epochs fenced."""

    in_doubt: int = gauge(
        "Batches whose clients may not have received the response, without those of connections that closed in good "
        "order after it. If it stays high, clients time out or disconnect: raise their time-outs.",
        "batches_in_doubt",
    )
    memory_bytes: int = gauge(
        "About how many bytes of memory kproxy uses to recognise retries: unconfirmed batches, those of connections "
        "that closed in good order included, and with fleet.retries.enable those that other instances listed. It "
        "falls to 0 retry.window.ms after the last client has left; the process keeps some of it.",
        "retry_memory_bytes",
    )
    records_matched: int = counter(
        "Records recognised as retries: answered, not written; each would have been a duplicate."
    )
    records_matched_untimed: int = counter(
        "Of the matched records, those without an equal timestamp: equal new records may be among them. The log "
        "names the producers; give each program its own client.id, and use clients that send timestamps."
    )
    records_stripped: int = counter("Of the matched records, those taken out of a batch whose others were new.")
    requests_dropped: int = counter(
        "Produce requests read after their connection had closed, and dropped because another one had used the "
        "partition."
    )
    readbacks: int = counter("Reads of a partition's log to compare with retries.")
    readback_bytes: int = counter("Bytes read to compare with retries.")
    readbacks_failed: dict[str, int] = counters(
        "Reads that failed: each may have let a duplicate through; check the reason, and recovery.max.bytes.",
        "reason",
        expected=("gone", "too_long", "too_many", "unreadable"),
    )
    fences: dict[str, int] = counters(
        "Markers that fenced a producer epoch. refused, by the broker: kproxy waited instead; grant it ClusterAction "
        "on the cluster.",
        "outcome",
        expected=("done", "refused"),
    )
    recoveries: int = counter("Partitions searched for what a former kproxy, or an abandoned producer id, had sent.")
    recovery_seconds: float = counter("Total time of recoveries; producers of these partitions wait.")
