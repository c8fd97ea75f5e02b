"""The applications of ``on.offset.commit`` by their clients."""

from kproxy.proxy.applications import CommitRules
from kproxy.txn.procedures.applications_by_rule import ApplicationsByRule
from tests.net.txn.test_applications_whole import RULES
from tests.txn.procedures.managed_scene import coordinated, managed_by


async def test_one_that_does_nothing_is_kept_while_there_are_few() -> None:
    async with coordinated() as at:
        by_rule = ApplicationsByRule(managed_by(at), CommitRules(RULES), 60_000)
        first = by_rule.of_producer("same-1")
        assert by_rule.of_producer("same-2") is not first
        assert by_rule.of_producer("same-1") is first
