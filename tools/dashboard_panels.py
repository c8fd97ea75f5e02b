"""What a panel of the dashboard is, and the queries that many of them have in common.

``@`` in a query is replaced by the chosen instances.
"""

from typing import NamedTuple


class Query(NamedTuple):
    """PromQL, and how its series are called in the legend."""

    expr: str
    legend: str


class Panel(NamedTuple):
    """One picture; ``unit`` is Grafana's id of it."""

    title: str
    unit: str
    description: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    #: Of a figure on top: from this value on yellow, and from that on red.
    yellow: float | None = None
    red: float | None = None


def rate_by(metric: str, by: str, legend: str, more: str = "") -> Query:
    """Of a counter in a second, by labels; ``more`` are further matchers, after a comma."""
    return Query(f"sum by ({by}) (rate({metric}{{@{more}}}[$__rate_interval]))", legend)


def sum_by(metric: str, by: str, legend: str) -> Query:
    """Of a gauge, by labels."""
    return Query(f"sum by ({by}) ({metric}{{@}})", legend)


def quantile_by(quantile: float, metric: str, by: str, legend: str, more: str = "") -> Query:
    """Of a histogram, by labels or ("") of all; ``more`` as for ``rate_by``."""
    labels = f"{by}, le" if by else "le"
    rate = f"sum by ({labels}) (rate({metric}_bucket{{@{more}}}[$__rate_interval]))"
    return Query(f"histogram_quantile({quantile}, {rate})", legend)
