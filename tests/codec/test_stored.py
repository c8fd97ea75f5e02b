"""What kproxy stores can be read again by it and by later ones, and by no former one."""

import pytest

from kproxy.codec._generated.producer_state_key import ProducerStateKey
from kproxy.codec.stored import UnknownRecord, decode_stored, encode_stored
from kproxy.errors import RemoteProtocolError

KEY = ProducerStateKey("here", 7)


def test_what_is_stored_is_read_again_after_its_version() -> None:
    data = encode_stored(KEY, 0)
    assert data == b"\0\0" + KEY.encode(0)
    assert decode_stored(ProducerStateKey, data, 0) == KEY


@pytest.mark.parametrize("version", [1, -1, 32_767])
def test_another_version_is_told_from_damage(version: int) -> None:
    with pytest.raises(UnknownRecord, match=f"version {version}"):
        decode_stored(ProducerStateKey, version.to_bytes(2, "big", signed=True) + b"rest", 0)


@pytest.mark.parametrize("data", [None, b"", b"\0"])
def test_nothing_is_damage(data: bytes | None) -> None:
    with pytest.raises(RemoteProtocolError, match="without a version") as caught:
        decode_stored(ProducerStateKey, data, 0)
    assert not isinstance(caught.value, UnknownRecord)
