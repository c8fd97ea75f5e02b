from hypothesis import given
from hypothesis import strategies as st

from kproxy.proxy.quotas.quota_rules import Entity, Limit, QuotaRule, QuotaRules, Share

RATE = Limit.REQUEST_RATE


def rule(principal: str | None, client_id: str | None, value: int, limit: Limit = RATE) -> QuotaRule:
    return QuotaRule(principal, client_id, {limit: value})


#: Kafka's order (KIP-55), and the place of globs in it.
ORDER = [
    ("User:a", "c"),
    ("User:a", "c*"),
    ("User:a", "*"),
    ("User:a", None),
    ("User:?", "c"),
    ("User:?", None),
    ("*", "c"),
    ("*", "*"),
    ("*", None),
    (None, "c"),
    (None, "c*"),
    (None, "*"),
]


def test_the_most_specific_rule_counts() -> None:
    rules = [rule(*who, number) for number, who in enumerate(ORDER)]
    while rules:
        (share,) = QuotaRules(rules[::-1]).of("User:a", "c").values()
        assert share.value == rules.pop(0).limits[RATE]


@given(st.permutations(list(enumerate(ORDER))))
def test_the_order_in_the_file_makes_no_difference(order: list[tuple[int, tuple[str | None, str | None]]]) -> None:
    rules = QuotaRules([rule(*who, number) for number, who in order])
    assert rules.of("User:a", "c")[RATE].value == 0
    assert rules.of("User:b", "c")[RATE].value == 4
    assert rules.of("User:bb", "d")[RATE].value == 7


def test_each_limit_is_searched_for_by_itself() -> None:
    found = QuotaRules([rule("User:a", None, 5), rule("*", None, 7), rule("*", None, 9, Limit.CONNECTIONS)]).of(
        "User:a", "c"
    )
    assert found == {
        RATE: Share(5, Entity("User:a", None)),
        Limit.CONNECTIONS: Share(9, Entity("User:a", None)),
    }


def test_each_client_that_fits_a_pattern_has_the_limit_for_itself() -> None:
    rules = QuotaRules([rule("User:*", "c*", 5)])
    assert rules.of("User:a", "c1")[RATE].entity == ("User:a", "c1")
    assert rules.of("User:b", "c1")[RATE].entity == ("User:b", "c1")
    assert QuotaRules([rule(None, "c*", 5)]).of("User:a", "c1")[RATE].entity == (None, "c1")
    assert rules.of("User:a", "d") == {}
