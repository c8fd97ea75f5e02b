"""ApiVersions: kproxy's ranges, the broker's features."""

import pytest

from kproxy.budget import unbounded
from kproxy.codec._generated.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApiVersion,
    ApiVersionsResponseFinalizedFeatureKey,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.proxy.handlers.api_versions import ApiVersions, is_valid, unsupported_version
from kproxy.proxy.handlers.base import Exchange
from tests.proxy.playbook import context


def lowered(*rows: tuple[int, int, int]) -> ApiVersionsResponse:
    features = [ApiVersionsResponseFinalizedFeatureKey("metadata.version", 29, 1)]
    response = ApiVersionsResponse(
        api_keys=[ApiVersionsResponseApiVersion(*row) for row in rows],
        finalized_features=features,
        finalized_features_epoch=7,
    )
    answer = ApiVersions().lower(context(), Exchange(None, 3, 3), response, unbounded())
    assert isinstance(answer, ApiVersionsResponse)
    assert (answer.finalized_features, answer.finalized_features_epoch) == (features, 7)
    return answer


def told(*rows: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    return [(row.api_key, row.min_version, row.max_version) for row in lowered(*rows).api_keys]


def test_ranges_reach_down_to_what_kproxy_can_lift_and_up_to_what_both_know() -> None:
    assert told((ApiKey.FETCH, 4, 18), (ApiKey.METADATA, 0, 13), (ApiKey.PRODUCE, 0, 99)) == [
        (ApiKey.PRODUCE, 0, 13),
        (ApiKey.FETCH, 0, 18),
        (ApiKey.METADATA, 0, 13),
    ]


def test_an_older_broker_is_not_made_newer() -> None:
    assert told((ApiKey.FETCH, 0, 12), (ApiKey.PRODUCE, 0, 9)) == [(ApiKey.PRODUCE, 0, 9), (ApiKey.FETCH, 0, 12)]


def test_the_state_of_share_groups_and_unknown_keys_are_hidden() -> None:
    """Rule 15."""
    assert told(*((key, 0, 1) for key in range(83, 88)), (999, 0, 0), (30_000, 0, 1)) == []


def test_share_groups_are_served_as_far_as_the_broker_serves_them() -> None:
    assert told((76, 1, 1), (77, 0, 1), (78, 1, 2), (79, 1, 2)) == [(76, 1, 1), (77, 1, 1), (78, 1, 2), (79, 1, 2)]


def test_a_refusal_of_the_broker_is_the_clients() -> None:
    """KIP-1242: an address that is another broker's now, or another cluster's."""
    refusal = ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED, throttle_time_ms=7)
    told = ApiVersions().lower(context(), Exchange(None, 5, 5), refusal, unbounded())
    assert told == ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED, throttle_time_ms=7)


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "valid"), [(None, -1, True), ("c", 0, True), (None, 0, False), ("c", -1, False)]
)
def test_a_cluster_and_a_node_are_named_together(cluster_id: str | None, node_id: int, valid: bool) -> None:
    request = ApiVersionsRequest("java", "4.4.0", cluster_id, node_id)
    assert is_valid(request, 5) is valid


@pytest.mark.parametrize("word", ["", "-", "a-", "a b", "a\n", "é"])
def test_software_is_named_in_kafkas_letters(word: str) -> None:
    assert is_valid(ApiVersionsRequest("apache-kafka-java", "4.4.0"), 3)
    for request in (ApiVersionsRequest(word, "1"), ApiVersionsRequest("a", word)):
        assert not is_valid(request, 3)
        assert is_valid(request, 2)


def test_the_answer_to_a_newer_version_holds_api_versions_alone() -> None:
    answer = unsupported_version(4)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.api_keys == [ApiVersionsResponseApiVersion(ApiKey.API_VERSIONS, 0, 4)]
