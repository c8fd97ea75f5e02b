"""At which version a request is sent: the newest that the broker serves and that says what is meant."""

import pytest

from kproxy.codec._generated.metadata import MetadataRequest
from kproxy.codec.messages import ApiKey
from kproxy.codec.version_choice import ANY, NoCommonVersion, VersionRange, choose_version


@pytest.mark.parametrize(
    ("served", "wanted", "chosen"),
    [((0, 5), ANY, 5), ((0, 99), ANY, MetadataRequest.MAX_VERSION), ((0, 99), (4, 9), 9), ((3, 4), (4, 9), 4)],
)
def test_the_newest_that_both_know_and_that_is_wanted(served: VersionRange, wanted: VersionRange, chosen: int) -> None:
    assert choose_version({ApiKey.METADATA: served}, MetadataRequest, wanted) == chosen
    assert choose_version({ApiKey.METADATA: served}, MetadataRequest(), wanted) == chosen


@pytest.mark.parametrize(("served", "wanted"), [((0, 3), (4, 9)), ((10, 12), (4, 9)), ((90, 99), ANY)])
def test_without_a_common_version_nothing_is_chosen(served: VersionRange, wanted: VersionRange) -> None:
    with pytest.raises(NoCommonVersion, match=f"serves versions {served[0]} to {served[1]} of Metadata"):
        choose_version({ApiKey.METADATA: served}, MetadataRequest, wanted)


def test_an_api_that_the_broker_does_not_serve_has_no_version() -> None:
    with pytest.raises(NoCommonVersion, match="serves no version"):
        choose_version({}, MetadataRequest)
