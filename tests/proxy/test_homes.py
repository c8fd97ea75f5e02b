import pytest

from kproxy.codec.messages import ApiKey
from kproxy.proxy.homes import Home, HomeRule, home_of

BOTH = {ApiKey.INIT_PRODUCER_ID: (0, 5), ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5)}


@pytest.mark.parametrize("missing", [ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, None])
def test_auto_is_the_broker_where_it_serves_transactions(missing: ApiKey | None) -> None:
    served = {key: versions for key, versions in BOTH.items() if key != missing}
    assert Home.AUTO.is_kproxy(served) is (missing is not None)
    assert Home.KPROXY.is_kproxy(served)
    assert not Home.BROKER.is_kproxy(served)


def test_the_first_pattern_that_fits_counts_in_full_and_case() -> None:
    rules = [HomeRule("a-*", Home.KPROXY), HomeRule("a-b", Home.BROKER), HomeRule("?", Home.BROKER)]
    assert [home_of(rules, name) for name in ("a-b", "x", "A-b", "xa-b")] == [
        Home.KPROXY,
        Home.BROKER,
        Home.AUTO,
        Home.AUTO,
    ]
