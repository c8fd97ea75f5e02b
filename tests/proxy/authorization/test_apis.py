"""Every API that is served has a guard, and every guard can speak every version."""

from collections.abc import Iterator
from typing import Any

import pytest

from kproxy.codec.header import encode_response
from kproxy.codec.messages import APIS, ApiKey, ErrorCode
from kproxy.codec.protocol_struct import ProtocolStruct
from kproxy.proxy.authorization.apis import GUARDS
from kproxy.proxy.versions import FREE, HIDDEN
from tests.proxy.authorization.screening import Screened, decoded
from tests.support.samples import Sampler

SAMPLES = 4
REFUSALS = {
    int(code)
    for code in ErrorCode
    if code.name.endswith("AUTHORIZATION_FAILED")
    or code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
}
#: Of these all may ask, or hear of what they may see.
PRUNED = {ApiKey.METADATA, ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_CLUSTER}
VERSIONS = [(key, version) for key in GUARDS for version in range(APIS[key][1], APIS[key][2] + 1)]


def errors(message: Any) -> Iterator[int]:
    """All error codes in a message, wherever they stand."""
    if isinstance(message, list):
        for item in message:
            yield from errors(item)
    elif isinstance(message, ProtocolStruct):
        for name in message.__slots__:
            value = getattr(message, name)
            if name.endswith("error_code") and value:
                yield value
            yield from errors(value)


def test_what_is_served_has_a_guard_or_needs_none() -> None:
    assert set(GUARDS) | FREE == set(APIS) - HIDDEN
    assert not set(GUARDS) & FREE


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_without_a_rule_nothing_is_forwarded_and_the_refusal_can_be_said(api_key: int, version: int) -> None:
    name = APIS[api_key][0]
    for seed in range(SAMPLES):
        screened = Screened()
        request, _ = Sampler(f"{name}Request", version, seed).message()
        screening, _ = screened.screen(request, version)
        if screening.frame is not None:
            assert api_key in PRUNED or not screened.told, "what was refused went on"
            continue
        if screening.answer is None:
            assert request.acks == 0
            continue
        assert screening.frame is None
        answer = decoded(encode_response(screening.answer, version, 7), api_key, version)
        assert set(errors(answer)) <= REFUSALS


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_super_users_hear_what_the_broker_says(api_key: int, version: int) -> None:
    name = APIS[api_key][0]
    for seed in range(SAMPLES):
        screened = Screened(super_user=True, names={bytes(range(16)): "t"})
        request, _ = Sampler(f"{name}Request", version, seed).message()
        screening, frame = screened.screen(request, version)
        by_unknown_id = api_key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE) or (
            api_key == ApiKey.FETCH and version >= 7
        )
        if by_unknown_id or screening.answer is not None:
            continue
        assert screening.frame is frame or set(screened.told) == set()
        answer, _ = Sampler(f"{name}Response", version, seed).message()
        if screening.finish is not None and screening.frame is frame:
            said = encode_response(answer, version, 7)
            told = screening.finish(said)
            assert without_operations(decoded(told, api_key, version)) == without_operations(
                decoded(said, api_key, version)
            )


def without_operations(message: Any) -> Any:
    """Bits of operations that there are not are not told, whatever a broker says."""
    for row in [message, *getattr(message, "topics", ()), *getattr(message, "groups", ())]:
        for name in ("authorized_operations", "topic_authorized_operations", "cluster_authorized_operations"):
            if hasattr(row, name):
                setattr(row, name, 0)
    return message
