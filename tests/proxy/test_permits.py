"""Who may use which transactional id."""

import pytest

from kproxy.proxy.permits import PermitRule, Permits, is_listed

RULES = (PermitRule("orders-*", "order-service*"), PermitRule("orders-eu", "audit"), PermitRule("none", "-"))
ALICE = "User:alice"


@pytest.mark.parametrize(
    ("transactional_id", "client_id", "may"),
    [
        ("orders-1", "order-service-7", True),
        ("orders-1", "audit", False),
        ("orders-eu", "audit", True),
        ("orders-eu", "order-service", True),
        ("orders-1", "", False),
        ("none", "order-service", False),
        ("anything", "anybody", True),
    ],
)
def test_an_id_that_rules_name_is_for_their_clients(transactional_id: str, client_id: str, may: bool) -> None:
    assert Permits(RULES).may_use(transactional_id, client_id, ALICE) is may


def test_without_rules_all_may_all() -> None:
    assert Permits().may_use("orders-1", "anybody", ALICE)
    assert not Permits().is_admin


@pytest.mark.parametrize(("pattern", "may"), [("User:al*", True), ("User:bob", False), ("alice", False), ("b*", True)])
def test_a_rule_may_name_principals(pattern: str, may: bool) -> None:
    assert Permits((PermitRule("orders", pattern),)).may_use("orders", "bob", ALICE) is may


@pytest.mark.parametrize(("host", "admin"), [("localhost", True), ("10.0.0.7", True), ("10.1.0.7", False)])
def test_admins_are_known_by_their_hosts(host: str, admin: bool) -> None:
    assert is_listed(host, ("localhost", "10.0.*")) is admin
