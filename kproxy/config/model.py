"""``Config``: every option with its type, default, unit and reason. This is the one table; all else is made from it.

The options are in groups; each part of kproxy takes the group that it reads, and is given the whole.
"""

from dataclasses import dataclass

from kproxy.config.broker_options import BrokerOptions, BrokerSecurityOptions, ClusterOptions
from kproxy.config.client_options import (
    AccessOptions,
    ClientLoginOptions,
    ClientTimeOptions,
    ClientTlsOptions,
    ListenOptions,
    OldClientOptions,
    SizeOptions,
)
from kproxy.config.options import gather
from kproxy.config.process_options import ControlOptions, LogOptions, ShutdownOptions, TraceOptions
from kproxy.config.retry_options import RetryOptions
from kproxy.config.transaction_options import TransactionOptions


class ConnectionOptions(
    RetryOptions,
    BrokerOptions,
    ClientTimeOptions,
    SizeOptions,
    BrokerSecurityOptions,
    ClientTlsOptions,
    ClusterOptions,
):
    """What one connection of a client needs, on both of its sides."""


@dataclass(frozen=True, kw_only=True)
@gather
class Config(
    TraceOptions,
    LogOptions,
    ControlOptions,
    OldClientOptions,
    TransactionOptions,
    ConnectionOptions,
    RetryOptions,
    ShutdownOptions,
    BrokerOptions,
    ClientTimeOptions,
    SizeOptions,
    BrokerSecurityOptions,
    AccessOptions,
    ClientLoginOptions,
    ClientTlsOptions,
    ListenOptions,
    ClusterOptions,
):
    """The effective configuration of one kproxy process. Sizes are in bytes, times in milliseconds."""
