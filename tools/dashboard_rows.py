"""What the dashboard shows: a table of rows and their panels. ``@`` in a query is replaced by the chosen instances."""

from tools.dashboard_panels import Panel, Query, quantile_by, rate_by, sum_by

_PRODUCE = ', api_key="Produce"'

#: Above the rows: one figure each, of all chosen instances.
FIGURES: tuple[Panel, ...] = (
    Panel(
        "Instances not ready",
        "none",
        "Instances that do not serve clients. /readyz of each says why.",
        (Query("count(kproxy_ready{@} == 0) or vector(0)", "not ready"),),
        "stat",
        red=1,
    ),
    Panel(
        "Produce not answered in time",
        "percentunit",
        "Share of Produce requests of the last five minutes that failed or timed out. The objective is 0.1 %.",
        (
            Query(
                "(sum(rate(kproxy_requests_timed_out_total{@}[5m])) "
                '+ sum(rate(kproxy_requests_unanswered_total{@, api_key="Produce"}[5m]))) '
                '/ (sum(rate(kproxy_requests_total{@, api_key="Produce"}[5m])) > 0) or vector(0)',
                "failed",
            ),
        ),
        "stat",
        yellow=0.001,
        red=0.0144,
    ),
    Panel(
        "Oldest batch without an outcome",
        "s",
        "Above a minute a partition takes no writes.",
        (Query("max(kproxy_oldest_unacknowledged_seconds{@})", "oldest"),),
        "stat",
        yellow=10,
        red=60,
    ),
    Panel(
        "Oldest open transaction",
        "s",
        "read_committed consumers wait at it.",
        (Query("max(kproxy_transaction_oldest_seconds{@})", "oldest"),),
        "stat",
        yellow=60,
        red=900,
    ),
    Panel(
        "Duplicates kept out",
        "short",
        "Records of retries that were not written a second time, in the time shown.",
        (Query("sum(increase(kproxy_records_matched_total{@}[$__range]))", "records"),),
        "stat",
    ),
    Panel(
        "Clients that Kafka 4 refuses",
        "none",
        "Clients that sent requests which Kafka 4 removed, in the time shown. The row at the bottom names them.",
        (
            Query(
                "count(sum by (client_id, client_software) (increase(kproxy_legacy_requests_total{@}[$__range])) > 0) "
                "or vector(0)",
                "clients",
            ),
        ),
        "stat",
        yellow=1,
    ),
)

ROWS: dict[str, tuple[Panel, ...]] = {
    "Health": (
        Panel(
            "Instances ready",
            "none",
            "Instances that serve clients, of those that are there.",
            (Query("sum(kproxy_ready{@})", "ready"), Query("count(kproxy_ready{@})", "there")),
            "stat",
        ),
        Panel(
            "Oldest batch without an answer",
            "s",
            "How long the oldest batch whose outcome is open has waited. Above a minute a partition takes no writes.",
            (Query("max by (instance) (kproxy_oldest_unacknowledged_seconds{@})", "{{instance}}"),),
        ),
        Panel(
            "Delay of the event loop",
            "s",
            "How late kproxy comes to what is due, at the median and for one in a hundred. One core does all the work.",
            (
                quantile_by(0.5, "kproxy_loop_delay_seconds", "instance", "{{instance}} p50"),
                quantile_by(0.99, "kproxy_loop_delay_seconds", "instance", "{{instance}} p99"),
            ),
        ),
        Panel(
            "Processor",
            "percentunit",
            "Share of one core that the process uses; near 100 % run more instances.",
            (Query("rate(process_cpu_seconds_total{@}[$__rate_interval])", "{{instance}}"),),
        ),
        Panel(
            "Memory",
            "bytes",
            "Memory of the process, and the part of it that requests and answers in buffers take.",
            (
                Query("process_resident_memory_bytes{@}", "{{instance}} resident"),
                Query("kproxy_buffered_bytes{@}", "{{instance}} buffers"),
            ),
        ),
        Panel(
            "Faults towards brokers",
            "ops",
            "Connections to brokers that failed, were lost or timed out, by kind.",
            (rate_by("kproxy_upstream_errors_total", "kind", "{{kind}}"),),
        ),
    ),
    "Traffic": (
        Panel(
            "Requests",
            "reqps",
            "Requests of clients that were answered, by API.",
            (rate_by("kproxy_requests_total", "api_key", "{{api_key}}"),),
        ),
        Panel(
            "Latency of Produce",
            "s",
            "From a request's last byte to its answer: the broker's time and kproxy's.",
            tuple(
                quantile_by(quantile, "kproxy_request_duration_seconds", "", f"p{quantile * 100:g}", _PRODUCE)
                for quantile in (0.5, 0.95, 0.99)
            ),
        ),
        Panel(
            "Latency by API, one in a hundred",
            "s",
            "99th percentile. Fetch and JoinGroup wait on purpose.",
            (quantile_by(0.99, "kproxy_request_duration_seconds", "api_key", "{{api_key}}"),),
        ),
        Panel(
            "Bytes of clients",
            "Bps",
            "What comes from clients and goes to them.",
            (rate_by("kproxy_client_bytes_total", "direction", "{{direction}}"),),
        ),
        Panel(
            "Bytes by API",
            "Bps",
            "Requests (in) and answers (out), by API.",
            (
                rate_by("kproxy_request_bytes_total", "api_key", "{{api_key}} in"),
                rate_by("kproxy_response_bytes_total", "api_key", "{{api_key}} out"),
            ),
        ),
        Panel(
            "Connections",
            "none",
            "Open connections of clients by listener (bootstrap, or a broker's id), and those to brokers.",
            (
                sum_by("kproxy_connections", "listener", "{{listener}}"),
                Query("sum(kproxy_upstream_connections{@})", "to brokers"),
            ),
        ),
        Panel(
            "Refused and failed",
            "ops",
            "Requests refused by reason, connections refused by reason, and requests that ended their connection.",
            (
                rate_by("kproxy_refusals_total", "reason", "{{reason}}"),
                rate_by("kproxy_connections_refused_total", "reason", "connection: {{reason}}"),
                rate_by("kproxy_requests_unanswered_total", "api_key", "no answer: {{api_key}}"),
            ),
        ),
    ),
    "Idempotence": (
        Panel(
            "Records stamped",
            "ops",
            "Records that got a producer id, an epoch and a sequence number, and their batches.",
            (
                Query("sum(rate(kproxy_records_stamped_total{@}[$__rate_interval]))", "records"),
                Query("sum(rate(kproxy_batches_stamped_total{@}[$__rate_interval]))", "batches"),
            ),
        ),
        Panel(
            "Duplicates kept out",
            "ops",
            "Records that were recognised as retries and not written again.",
            (
                Query("sum(rate(kproxy_records_matched_total{@}[$__rate_interval]))", "matched"),
                Query(
                    "sum(rate(kproxy_records_matched_untimed_total{@}[$__rate_interval]))",
                    "of these, without an equal timestamp",
                ),
                Query(
                    "sum(rate(kproxy_records_stripped_total{@}[$__rate_interval]))", "of these, taken out of a batch"
                ),
            ),
        ),
        Panel(
            "In flight and in doubt",
            "none",
            "Batches in flight, batches whose clients may not have received the response, and producer ids in use.",
            (
                Query("sum(kproxy_batches_in_flight{@})", "in flight"),
                Query("sum(kproxy_batches_in_doubt{@})", "in doubt"),
                Query("sum(kproxy_producer_ids_active{@})", "producer ids"),
            ),
        ),
        Panel(
            "Sent again",
            "ops",
            "Batches that kproxy sent again, by reason, and clients that received REQUEST_TIMED_OUT meanwhile.",
            (
                Query("sum(rate(kproxy_requests_timed_out_total{@}[$__rate_interval]))", "timed out"),
                rate_by("kproxy_resends_total", "reason", "{{reason}}"),
            ),
        ),
        Panel(
            "Fences and read-backs",
            "ops",
            "Markers that fenced a producer epoch, by outcome, and reads of logs to compare with retries.",
            (
                rate_by("kproxy_fences_total", "outcome", "fence {{outcome}}"),
                Query("sum(rate(kproxy_readbacks_total{@}[$__rate_interval]))", "read-backs"),
            ),
        ),
        Panel(
            "Could not be compared",
            "none",
            "Retries in the last hour that could not be compared with the log: each may have become a duplicate.",
            (Query("sum by (reason) (increase(kproxy_readbacks_failed_total{@}[1h]))", "{{reason}}"),),
        ),
    ),
    "Transactions": (
        Panel(
            "Decided",
            "ops",
            "Transactions committed, and aborted by reason.",
            (
                Query("sum(rate(kproxy_transactions_committed_total{@}[$__rate_interval]))", "committed"),
                rate_by("kproxy_transactions_aborted_total", "reason", "aborted: {{reason}}"),
            ),
        ),
        Panel(
            "Open and prepared",
            "none",
            "Transactions that are open at each instance, and parts that wait for a decision (seen by all instances).",
            (
                Query("sum(kproxy_transactions_open{@})", "open"),
                Query("max(kproxy_transactions_prepared{@})", "prepared"),
            ),
        ),
        Panel(
            "Oldest open transaction",
            "s",
            "Records after it wait to be read.",
            (Query("max by (instance) (kproxy_transaction_oldest_seconds{@})", "{{instance}}"),),
        ),
        Panel(
            "Time of a decision",
            "s",
            "Until the outcome of its record in the transaction log is known.",
            tuple(
                quantile_by(quantile, "kproxy_transaction_append_seconds", "", f"p{quantile * 100:g}")
                for quantile in (0.5, 0.99)
            ),
        ),
        Panel(
            "Claims and fenced producers",
            "ops",
            "Transactional ids claimed, by outcome, and requests of producers that a newer one has replaced.",
            (
                rate_by("kproxy_transaction_claims_total", "outcome", "claim {{outcome}}"),
                Query("sum(rate(kproxy_transactions_fenced_total{@}[$__rate_interval]))", "fenced"),
                Query("sum(rate(kproxy_transactions_resumed_total{@}[$__rate_interval]))", "resumed"),
            ),
        ),
        Panel(
            "Transaction log not applied yet",
            "none",
            "Records of the transaction log that are not read yet; if it grows, decisions are seen late.",
            (Query("max by (instance) (kproxy_transaction_log_lag{@})", "{{instance}}"),),
        ),
    ),
    "Read side": (
        Panel(
            "Bytes read",
            "Bps",
            "Answers to Fetch, and what was hidden in them from readers of committed data.",
            (
                rate_by("kproxy_response_bytes_total", "api_key", "delivered", ', api_key="Fetch"'),
                Query("sum(rate(kproxy_hidden_bytes_total{@}[$__rate_interval]))", "hidden"),
            ),
        ),
        Panel(
            "Held up by undecided transactions",
            "none",
            "Offsets between the last stable offset and the end, where there are most.",
            (
                Query(
                    "topk(10, max by (topic, partition) (kproxy_last_stable_offset_lag{@}))", "{{topic}} {{partition}}"
                ),
            ),
        ),
        Panel(
            "Producer ids that the log does not know",
            "none",
            "Readers wait at their data. More than none: the transaction log was lost, or is another one.",
            (Query("max by (instance) (kproxy_unknown_producer_ids{@})", "{{instance}}"),),
        ),
    ),
    "Access": (
        Panel(
            "Logins",
            "ops",
            "Logins of clients by SASL, by mechanism and result. Nothing: kproxy does not ask for any.",
            (rate_by("kproxy_client_logins_total", "mechanism, result", "{{mechanism}} {{result}}"),),
        ),
        Panel(
            "Not allowed",
            "ops",
            "What the rules refused, by operation and kind of resource, and requests to the pages of kproxy's own.",
            (
                rate_by(
                    "kproxy_authorization_refusals_total", "operation, resource_type", "{{operation}} {{resource_type}}"
                ),
                rate_by("kproxy_http_requests_refused_total", "listener, reason", "{{listener}}: {{reason}}"),
            ),
        ),
        Panel(
            "Held back by quotas",
            "percentunit",
            "Time for which clients had to wait, by limit; 100 % is one client all the time.",
            (rate_by("kproxy_throttle_seconds_total", "limit", "{{limit}}"),),
        ),
    ),
    "Legacy clients": (
        Panel(
            "Requests that Kafka 4 would refuse",
            "reqps",
            "By API and version: in versions that Kafka 4 removed.",
            (rate_by("kproxy_legacy_requests_total", "api_key, api_version", "{{api_key}} v{{api_version}}"),),
        ),
        Panel(
            "Who sends them",
            "reqps",
            "Clients that have to be upgraded before they can do without kproxy.",
            (
                Query(
                    "topk(20, sum by (client_id, client_software) "
                    "(rate(kproxy_legacy_requests_total{@}[$__rate_interval])))",
                    "{{client_id}} {{client_software}}",
                ),
            ),
        ),
        Panel(
            "Records converted",
            "ops",
            "From (up) and to (down) the record formats 0 and 1.",
            (rate_by("kproxy_records_converted_total", "direction, magic", "{{direction}} format {{magic}}"),),
        ),
        Panel(
            "Software of clients",
            "none",
            "Open connections by what clients call their software; unknown where they have not said.",
            (
                sum_by(
                    "kproxy_client_software_connections",
                    "client_software, client_software_version",
                    "{{client_software}} {{client_software_version}}",
                ),
            ),
        ),
    ),
}
