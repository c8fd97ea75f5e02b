import json

import pytest
import trio
import trio.testing

from kproxy.net.client_login.token_keys import KeysError, TokenKeys, parse_keys

KEY = {"kty": "RSA", "kid": "one", "n": "AQAB", "e": "AQAB"}


def key_set(*kids: str) -> bytes:
    return json.dumps({"keys": [{**KEY, "kid": kid} for kid in kids]}).encode()


class Source:
    """Gives key sets one by one; the last stays. None fails."""

    def __init__(self, *sets: bytes | None) -> None:
        self.sets = list(sets)
        self.asked = 0

    def __call__(self, url: str) -> bytes:
        self.asked += 1
        found = self.sets[0] if len(self.sets) == 1 else self.sets.pop(0)
        if found is None:
            raise OSError("no route to host")
        return found


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "Expecting value"),
        (b"[]", "no JSON Web Key Set"),
        (b'{"keys": {}}', "no JSON Web Key Set"),
        (b'{"keys": []}', "no key in it"),
        (b'{"keys": [{"kty": "oct", "k": "x"}, 7]}', "no key in it"),
        (json.dumps({"keys": [{**KEY, "use": "enc"}]}).encode(), "no key in it"),
        (b" " * ((1 << 20) + 1), "more than 1048576 bytes"),
        (b"\xff\xfe", "codec|Expecting"),
    ],
)
def test_what_is_no_key_set_is_reported(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_keys(data)


async def test_keys_are_asked_for_once_and_again_when_they_are_old(autojump_clock: trio.testing.MockClock) -> None:
    source = Source(key_set("one"), key_set("two"))
    keys = TokenKeys("k", 60_000, source)
    for _ in range(3):
        assert (await keys.find("one") or {})["kid"] == "one"
    assert source.asked == 1
    await trio.sleep(61)
    assert (await keys.find("two") or {})["kid"] == "two"
    assert source.asked == 2


async def test_an_unknown_id_asks_again_but_not_without_end(autojump_clock: trio.testing.MockClock) -> None:
    source = Source(key_set("one"), key_set("one", "two"))
    keys = TokenKeys("k", 3_600_000, source)
    assert await keys.find("two") is None
    assert source.asked == 1
    await trio.sleep(11)
    assert (await keys.find("two") or {})["kid"] == "two"
    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(keys.find, f"made up {number}")
    assert source.asked == 2
    assert await keys.find(None) is None


async def test_old_keys_stay_while_new_ones_are_unavailable(autojump_clock: trio.testing.MockClock) -> None:
    keys = TokenKeys("k", 1000, Source(key_set("one"), None))
    await keys.find("one")
    await trio.sleep(20)
    assert (await keys.find("one") or {})["kid"] == "one"


async def test_who_never_had_keys_says_why(autojump_clock: trio.testing.MockClock) -> None:
    source = Source(None, None, key_set("one"))
    keys = TokenKeys("k", 1000, source)
    for _ in range(3):
        with pytest.raises(KeysError, match="keys from k: no route to host"):
            await keys.find("one")
    assert source.asked == 1
    await trio.sleep(11)
    with pytest.raises(KeysError):
        await keys.find("one")
    await trio.sleep(11)
    assert await keys.find("one") is not None
