"""At which version a request is sent."""

from collections.abc import Mapping
from typing import Final, TypeAlias

from kproxy.codec.messages import Message, api_name
from kproxy.errors import RemoteProtocolError

VersionRange: TypeAlias = tuple[int, int]
"""The oldest version and the newest."""

ANY: Final[VersionRange] = (0, 1 << 15)


class NoCommonVersion(RemoteProtocolError):
    """The broker serves no version of the request that would do."""


def choose_version(
    served: Mapping[int, VersionRange], request: Message | type[Message], wanted: VersionRange = ANY
) -> int:
    """The newest version that the broker serves, by API key, and that is ``wanted``; NoCommonVersion."""
    oldest, newest = max(wanted[0], request.MIN_VERSION), min(wanted[1], request.MAX_VERSION)
    first, last = served.get(request.API_KEY, (0, -1))
    if max(oldest, first) > min(newest, last):
        has = f"versions {first} to {last}" if last >= 0 else "no version"
        raise NoCommonVersion(f"the broker serves {has} of {api_name(request.API_KEY)}; {oldest} to {newest} would do")
    return min(newest, last)
