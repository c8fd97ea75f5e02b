"""Counters of the webhook."""

# ruff: noqa: RUF009 - these functions make a dataclasses.field, not a shared mutable default.

from dataclasses import dataclass

from kproxy.proxy.certificate_stats import CertificateStats
from kproxy.proxy.durations import Durations
from kproxy.proxy.metric_fields import counters, durations


@dataclass(slots=True)
class WebhookStats(CertificateStats):
    """Counters of what the webhook has answered and refused to read, and its certificate."""

    reviews: dict[str, int] = counters(
        "Reviews of pods that were answered. refused: a label or an annotation is wrong; malformed: not a review.",
        "result",
        name="webhook_reviews",
        expected=("injected", "left_alone", "malformed", "refused"),
    )
    requests_refused: dict[str, int] = counters(
        "Requests that were not reviewed. too_long, late: of the body; crowded: others needed the memory; "
        "disconnected: the body did not end.",
        "reason",
        name="webhook_requests_refused",
        expected=("crowded", "disconnected", "late", "too_long"),
    )
    connections_refused: dict[str, int] = counters(
        "Connections that were refused, or ended before their request was whole. evicted: the oldest waiting "
        "one, for a newer one.",
        "reason",
        name="webhook_connections_refused",
        expected=("accept", "evicted", "max_connections", "max_connections_per_ip", "slow_head"),
    )
    review_seconds: Durations = durations(
        "Time from a request's head to its response, with the transfer of its body.", "webhook_review_seconds"
    )

    def refused(self, reason: str) -> None:
        """Counts one request that was not reviewed."""
        self.requests_refused[reason] = self.requests_refused.get(reason, 0) + 1

    def refused_connection(self, reason: str) -> None:
        """Counts one connection that was refused, or ended for others."""
        self.connections_refused[reason] = self.connections_refused.get(reason, 0) + 1

    def reviewed(self, outcome: str) -> None:
        """Counts one review."""
        result = outcome.replace(" ", "_")
        self.reviews[result] = self.reviews.get(result, 0) + 1
