import pytest

from kproxy.codec.messages import ApiKey
from kproxy.proxy.coordinator_rules import Home, HomeRule, any_kproxys, home_of, is_kproxys

BOTH = {ApiKey.INIT_PRODUCER_ID: (0, 5), ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5)}


@pytest.mark.parametrize("missing", [ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, None])
def test_auto_is_the_broker_where_it_serves_transactions(missing: ApiKey | None) -> None:
    served = {key: versions for key, versions in BOTH.items() if key != missing}
    assert Home.AUTO.is_kproxy(served) is (missing is not None)
    assert Home.KPROXY.is_kproxy(served)
    assert not Home.BROKER.is_kproxy(served)
    assert Home.BROKER_FENCED.is_kproxy(served), "its clients ask kproxy"
    assert [home for home in Home if home.is_broker] == [Home.BROKER, Home.BROKER_FENCED]


def test_the_first_pattern_that_fits_counts_in_full_and_case() -> None:
    rules = [HomeRule("a-*", Home.KPROXY), HomeRule("a-b", Home.BROKER), HomeRule("?", Home.BROKER)]
    assert [home_of(rules, name) for name in ("a-b", "x", "A-b", "xa-b")] == [
        Home.KPROXY,
        Home.BROKER,
        Home.AUTO,
        Home.AUTO,
    ]


def test_whether_any_id_may_be_kproxys() -> None:
    brokers = HomeRule("*", Home.BROKER)
    assert any_kproxys([HomeRule("a", Home.KPROXY), brokers], BOTH)
    assert not any_kproxys([brokers, HomeRule("a", Home.KPROXY)], {}), "nothing is behind the rule for all"
    assert any_kproxys([HomeRule("a", Home.BROKER)], {}), "other ids are where the broker decides it"
    assert not any_kproxys([HomeRule("a", Home.BROKER)], BOTH)
    assert is_kproxys([HomeRule("a", Home.BROKER)], "b", {})
    assert not is_kproxys([HomeRule("a", Home.BROKER)], "a", {})
