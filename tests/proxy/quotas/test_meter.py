import pytest

from kproxy.codec.messages import ApiKey
from kproxy.proxy.quotas.meter import Meter, Quotas, Throttle, TooManyConnections
from kproxy.proxy.quotas.quota_rules import Limit, QuotaRule, QuotaRules


def quotas(principal: str | None = "*", client_id: str | None = None, **limits: int) -> tuple[Quotas, list[Throttle]]:
    told: list[Throttle] = []
    rule = QuotaRule(principal, client_id, {Limit(name): value for name, value in limits.items()})
    return Quotas(QuotaRules([rule]), 5.0, told.append), told


def known(shared: Quotas, principal: str = "User:a", client_id: str = "c") -> Meter:
    meter = Meter(shared)
    meter.identify(ApiKey.METADATA, principal, client_id, 0.0)
    return meter


def test_written_and_read_bytes_count_for_their_limits() -> None:
    shared, told = quotas(producer_byte_rate=100, consumer_byte_rate=200)
    meter = known(shared)
    assert meter.answered(ApiKey.PRODUCE, 100, 1_000, 0.0) == 0.0
    assert meter.answered(ApiKey.PRODUCE, 50, 1_000, 0.0) == 0.5
    assert meter.answered(ApiKey.FETCH, 1_000, 300, 0.0) == 0.5
    assert meter.answered(ApiKey.SHARE_FETCH, 1_000, 300, 0.0) == 2.0
    assert meter.answered(ApiKey.METADATA, 1_000, 1_000, 0.0) == 0.0
    assert told == [(Limit.PRODUCER_BYTE_RATE, 0.5), (Limit.CONSUMER_BYTE_RATE, 0.5), (Limit.CONSUMER_BYTE_RATE, 2.0)]


def test_connections_of_one_principal_share_his_limit() -> None:
    shared, _ = quotas(request_rate=2)
    first, second, other = known(shared), known(shared, client_id="d"), known(shared, "User:b")
    assert [meter.answered(ApiKey.HEARTBEAT, 1, 1, 0.0) for meter in (first, second, first)] == [0.0, 0.0, 0.5]
    assert other.answered(ApiKey.HEARTBEAT, 1, 1, 0.0) == 0.0


def test_a_login_counts_for_no_limit() -> None:
    shared, told = quotas(request_rate=1)
    meter = Meter(shared)
    for api_key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.SASL_AUTHENTICATE):
        assert meter.identify(api_key, "User:ANONYMOUS", "c", 0.0) == 0.0
        assert meter.answered(api_key, 1, 1, 0.0) == 0.0
    meter.identify(ApiKey.METADATA, "User:a", "c", 0.0)
    for _ in range(3):
        assert meter.answered(ApiKey.SASL_AUTHENTICATE, 1, 1, 0.0) == 0.0
    assert told == []


@pytest.mark.parametrize("api_key", [ApiKey.API_VERSIONS, ApiKey.PUSH_TELEMETRY, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS])
def test_what_needs_no_right_counts_for_the_request_rate(api_key: ApiKey) -> None:
    shared, _ = quotas(request_rate=2)
    meter = Meter(shared)
    waits = []
    for _ in range(20):
        meter.identify(api_key, "User:ANONYMOUS", "c", 0.0)
        waits.append(meter.answered(api_key, 1, 1, 0.0))
    assert waits[:5] == [0.0] * 5
    assert waits[-1] > 0


def test_connections_are_counted_as_long_as_they_last() -> None:
    shared, _ = quotas(connections=2)
    first, second = known(shared), known(shared)
    third = Meter(shared)
    with pytest.raises(TooManyConnections, match=r"User:a with client\.id 'c' has 2 connections already"):
        third.identify(ApiKey.METADATA, "User:a", "c", 0.0)
    third.close()
    known(shared, "User:b")
    first.close()
    first.close()
    third.identify(ApiKey.METADATA, "User:a", "c", 0.0)
    second.close()
    third.close()
    assert shared.connections == {("User:b", None): 1}


def test_another_principal_takes_the_connection_with_him() -> None:
    shared, _ = quotas(connections=1)
    meter = known(shared)
    meter.identify(ApiKey.METADATA, "User:b", "c", 0.0)
    assert shared.connections == {("User:b", None): 1}
    known(shared, "User:a")


def test_many_new_connections_wait() -> None:
    shared, told = quotas(connection_creation_rate=1)
    waits = [Meter(shared).identify(ApiKey.METADATA, "User:a", "c", 0.0) for _ in range(3)]
    assert waits == [0.0, 1.0, 2.0]
    assert [each.limit for each in told] == [Limit.CONNECTION_CREATION_RATE] * 2


def test_new_rules_hold_for_the_next_request() -> None:
    shared, _ = quotas(request_rate=1)
    meter = known(shared)
    meter.answered(ApiKey.METADATA, 1, 1, 0.0)
    shared.rules = QuotaRules([QuotaRule("User:a", None, {Limit.REQUEST_RATE: 100, Limit.CONNECTIONS: 1})])
    assert meter.answered(ApiKey.METADATA, 1, 1, 0.0) == 0.01
    meter.identify(ApiKey.METADATA, "User:a", "c", 0.0)
    assert shared.connections == {("User:a", None): 1}
    shared.rules = QuotaRules()
    meter.identify(ApiKey.METADATA, "User:a", "c", 0.0)
    assert shared.connections == {}
    assert not meter.limits_answers
