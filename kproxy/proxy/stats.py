"""What the data path counts and the metrics page shows, in one group for each part of kproxy.

Plain attributes and dictionaries: counting must cost next to nothing; the page is formatted when it is requested.
"""

from dataclasses import dataclass, field

from kproxy.proxy.api_stats import ApiStats
from kproxy.proxy.certificate_stats import CertificateStats
from kproxy.proxy.client_stats import ClientStats
from kproxy.proxy.kept_stats import KeptStats
from kproxy.proxy.process_stats import ProcessStats
from kproxy.proxy.produce_stats import ProduceStats
from kproxy.proxy.refusal_stats import RefusalStats
from kproxy.proxy.retry_stats import RetryStats
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.proxy.upstream_stats import UpstreamStats


@dataclass(frozen=True, slots=True)
class Stats:
    """What one kproxy process has done since it began, and its state now. Each part has the group that it counts."""

    upstream: UpstreamStats = field(default_factory=UpstreamStats)
    clients: ClientStats = field(default_factory=ClientStats)
    certificates: CertificateStats = field(default_factory=CertificateStats)
    apis: ApiStats = field(default_factory=ApiStats)
    produce: ProduceStats = field(default_factory=ProduceStats)
    kept: KeptStats = field(default_factory=KeptStats)
    retries: RetryStats = field(default_factory=RetryStats)
    refused: RefusalStats = field(default_factory=RefusalStats)
    process: ProcessStats = field(default_factory=ProcessStats)
    transactions: TransactionStats = field(default_factory=TransactionStats)
