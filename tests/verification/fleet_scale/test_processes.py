"""What is said of a fleet of processes; the processes themselves are run by hand."""

from collections import Counter

from kproxy.codec.messages import ApiKey
from verification.fleet_scale.processes import Cost, Findings, report


def test_the_report_has_the_cost_of_one_process_and_what_the_brokers_were_asked() -> None:
    start = Cost(2.0, [0.3, 0.5, 0.4], [50_000_000] * 3, Counter({int(ApiKey.METADATA): 12}))
    idle = Cost(60.0, [0.03, 0.06, 0.03], [46_000_000, 47_000_000, 48_000_000], Counter({int(ApiKey.FETCH): 9}))
    restarts = Cost(9.0, [0.4] * 3, [46_000_000] * 3)
    lines = list(report(Findings(start, idle, restarts, 1200, ["lost"])))
    assert lines == [
        "3 processes, 3 brokers of Kafka; all figures of one process are median and most",
        "all started at once: ready after 2.0 s, 0.4, 0.5 s of CPU",
        "  requests at the brokers: 12, one in 0.5 s of each process: 12 METADATA",
        "idle for 60 s: 0.05, 0.1 % of a core, 47, 48 MB",
        "  requests at the brokers: 9, one in 20.0 s of each process: 9 FETCH",
        "all restarted one after the other: 9.0 s",
        "  requests at the brokers: 0, none: ",
        '  1,200 records acknowledged, 1 errors ["lost"]',
    ]
