"""Counters of what clients were refused."""

# ruff: noqa: RUF009 - these functions make a dataclasses.field, not a shared mutable default.

from dataclasses import dataclass

from kproxy.proxy.metric_fields import counters
from kproxy.proxy.quotas.quota_rules import Limit

_REFUSALS = (
    "acks",
    "elements",
    "evicted",
    "expired_producer_id",
    "foreign_producer_id",
    "forged_producer_id",
    "idle",
    "malformed",
    "own_topic",
    "quota",
    "slow_frame",
    "slow_reader",
    "tls_handshake",
    "topic_name",
    "transactional_id",
)


@dataclass(slots=True)
class RefusalStats:
    """Requests that were refused, and clients that were muted."""

    refusals: dict[str, int] = counters("Requests or batches refused.", "reason", expected=_REFUSALS)
    http_refused: dict[tuple[str, str], int] = counters(
        "Refused requests to the status page (http) and the control API (control). token: a wrong or old one; host, "
        "origin: another site's web page.",
        "listener",
        "reason",
        name="http_requests_refused",
    )
    http_connections_refused: dict[tuple[str, str], int] = counters(
        "Connections to the status page (http) and the control API (control) that were refused, or ended before "
        "their request was whole. evicted: the oldest waiting one, for a newer one.",
        "listener",
        "reason",
    )
    authorization_refusals: dict[tuple[str, str], int] = counters(
        "Refusals by rules of acl.file; the log names principal and resource.", "operation", "resource_type"
    )
    throttles: dict[str, int] = counters(
        "Times that a client was muted because it exceeded a limit of quotas.file.",
        "limit",
        expected=tuple(limit.value for limit in Limit if limit is not Limit.CONNECTIONS),
    )
    throttle_seconds: dict[str, float] = counters(
        "Time for which clients were muted; if it rises by a second each second, a client is always at its limit.",
        "limit",
    )

    def count_http_refused(self, listener: str, reason: str) -> None:
        """Counts one request to a page of kproxy's own that was refused."""
        self.http_refused[listener, reason] = self.http_refused.get((listener, reason), 0) + 1

    def count_http_connection(self, listener: str, reason: str) -> None:
        """Counts one connection to a page of kproxy's own that was refused, or ended for others."""
        refused = self.http_connections_refused
        refused[listener, reason] = refused.get((listener, reason), 0) + 1
