from kproxy.proxy.api_stats import OTHER_CLIENTS, ApiStats


def test_observe_sums_by_key_and_version() -> None:
    stats = ApiStats()
    stats.observe(0, 2, 0.25, 1, 2)
    stats.observe(0, 2, 0.5, 10, 20)
    stats.observe(0, 3, 1.0, 3, 4)
    assert stats.requests[0, 2].count == 2
    assert stats.requests[0, 2].seconds_sum == 0.75
    assert stats.requests[0, 3].count == 1


def test_legacy_clients_are_bounded() -> None:
    stats = ApiStats(legacy_clients_max=2)
    for client in ("a", "b", "c", "d", "a"):
        stats.observe_legacy(0, 2, client, "")
    assert stats.legacy_requests == {
        (0, 2, "a", ""): 2,
        (0, 2, "b", ""): 1,
        (0, 2, OTHER_CLIENTS, OTHER_CLIENTS): 2,
    }


def test_a_known_client_stays_known_when_the_limit_is_reached() -> None:
    stats = ApiStats(legacy_clients_max=1)
    stats.observe_legacy(0, 2, "a", "java 1")
    stats.observe_legacy(0, 2, "b", "java 1")
    stats.observe_legacy(1, 3, "a", "java 1")
    assert stats.legacy_requests[1, 3, "a", "java 1"] == 1


def test_no_limit_of_clients_means_all_are_counted_as_one() -> None:
    stats = ApiStats(legacy_clients_max=0)
    stats.observe_legacy(0, 2, "a", "")
    assert stats.legacy_requests == {(0, 2, OTHER_CLIENTS, OTHER_CLIENTS): 1}


def test_null_client_id_and_long_names() -> None:
    stats = ApiStats()
    stats.observe_legacy(0, 0, None, "x" * 10_000)
    assert list(stats.legacy_requests) == [(0, 0, "", "x" * 128)]
