from structlog.testing import capture_logs

from kproxy.net.audit_log import AuditLog
from kproxy.proxy.authorization.access import Refusal
from kproxy.proxy.authorization.acl_rules import Operation, ResourceType, Subject
from kproxy.proxy.refusal_stats import RefusalStats
from kproxy.proxy.stats import Stats

ALICE = Subject("User:alice", "10.0.0.1", "etl")


def refusal(name: str) -> Refusal:
    return Refusal(0, Operation.WRITE, ResourceType.TOPIC, name, None)


def test_the_same_refusal_is_reported_once_a_minute_with_how_often_it_came() -> None:
    audit = AuditLog(RefusalStats())
    with capture_logs() as lines:
        for second in range(50):
            audit.refused(ALICE, refusal("a"), 100.0 + second)
        audit.refused(ALICE._replace(principal="User:bob"), refusal("a"), 151.0)
        audit.refused(ALICE, refusal("a"), 161.0)
    assert [(line["principal"], line["suppressed"]) for line in lines] == [
        ("User:alice", 0),
        ("User:bob", 0),
        ("User:alice", 49),
    ]


def test_a_flood_of_names_is_counted_and_not_logged_without_end() -> None:
    stats = Stats()
    audit = AuditLog(stats.refused)
    with capture_logs() as lines:
        for number in range(5_000):
            audit.refused(ALICE, refusal(f"t{number}"), 100.0)
    assert len(lines) == 1_001
    assert lines[-1]["event"] == "more refusals than are logged"
    assert stats.refused.authorization_refusals == {("Write", "Topic"): 5_000}
