"""Which release of Kafka a broker is most like, as far as its ApiVersions response tells.

With KRaft the newest metadata.version that it supports names its release (Kafka's ``MetadataVersion``). Others are
recognized by what they serve: each release added an API or a version.
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Final

from kproxy.codec.messages import ApiKey
from kproxy.codec.version_choice import VersionRange

METADATA_VERSION: Final = "metadata.version"

#: The first metadata.version of each release.
_LEVELS: Final = (
    (1, "3.0"),
    (2, "3.1"),
    (3, "3.2"),
    (4, "3.3"),
    (8, "3.4"),
    (9, "3.5"),
    (12, "3.6"),
    (15, "3.7"),
    (20, "3.8"),
    (21, "3.9"),
    (22, "4.0"),
    (26, "4.1"),
    (28, "4.2"),
    (30, "4.3"),
    (31, "4.4"),
)
#: What a release was the first to serve, newest first.
_FIRSTS: Final = (
    (ApiKey.FETCH, 17, "3.9"),
    (ApiKey.FETCH, 16, "3.7"),
    (ApiKey.FETCH, 15, "3.5"),
    (ApiKey.FETCH, 13, "3.1"),
    (ApiKey.LIST_OFFSETS, 7, "3.0"),
    (ApiKey.DESCRIBE_CLUSTER, 0, "2.8"),
    (ApiKey.FETCH, 12, "2.7"),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, "2.6"),
    (ApiKey.DESCRIBE_ACLS, 2, "2.5"),
    (ApiKey.PRODUCE, 8, "2.4"),
    (ApiKey.FETCH, 11, "2.3"),
    (ApiKey.LIST_OFFSETS, 5, "2.2"),
    (ApiKey.FETCH, 10, "2.1"),
    (ApiKey.FETCH, 8, "2.0"),
    (ApiKey.FETCH, 7, "1.1"),
    (ApiKey.METADATA, 5, "1.0"),
    (ApiKey.METADATA, 4, "0.11"),
    (ApiKey.METADATA, 2, "0.10.1"),
)
_OLDEST: Final = "0.10.0"


def release_of(versions: Mapping[int, VersionRange], supported: Mapping[str, int]) -> str:
    """The release, as "4.1". ``supported``: the highest level of each feature that the broker knows."""
    level = supported.get(METADATA_VERSION, 0)
    at = bisect_right(_LEVELS, level, key=lambda row: row[0])
    if at:
        return _LEVELS[at - 1][1]
    for api_key, version, release in _FIRSTS:
        if api_key in versions and versions[api_key][1] >= version:
            return release
    return _OLDEST
