import pytest

from kproxy.codec.messages import ApiKey
from kproxy.proxy.releases import METADATA_VERSION, release_of


@pytest.mark.parametrize(("level", "release"), [(1, "3.0"), (7, "3.3"), (11, "3.5"), (30, "4.3"), (99, "4.4")])
def test_the_newest_metadata_version_names_the_release(level: int, release: str) -> None:
    assert release_of({ApiKey.FETCH: (0, 4)}, {METADATA_VERSION: level}) == release


@pytest.mark.parametrize(
    ("api_key", "newest", "release"),
    [
        (ApiKey.FETCH, 17, "3.9"),
        (ApiKey.FETCH, 11, "2.3"),
        (ApiKey.FETCH, 9, "2.0"),
        (ApiKey.PRODUCE, 8, "2.4"),
        (ApiKey.METADATA, 4, "0.11"),
        (ApiKey.METADATA, 1, "0.10.0"),
    ],
)
def test_without_it_what_a_broker_serves_does(api_key: ApiKey, newest: int, release: str) -> None:
    assert release_of({api_key: (0, newest)}, {}) == release
