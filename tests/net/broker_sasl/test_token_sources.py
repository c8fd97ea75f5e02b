"""Requested tokens: shared, renewed in time, and missed when they are unavailable."""

from itertools import count

import pytest
import trio
import trio.testing

from kproxy.net.broker_sasl.token_sources import Issued, IssuedTokens


class Issuer:
    """Issues tokens one after another, unless it is down."""

    def __init__(self, lifetime: float = 100) -> None:
        self.numbers = count(1)
        self.issued = 0
        self.lifetime = lifetime
        self.down = False
        self.hangs = False

    async def ask(self) -> Issued:
        await trio.lowlevel.checkpoint()
        if self.hangs:
            await trio.sleep_forever()
        if self.down:
            raise OSError("the issuer is down")
        self.issued = next(self.numbers)
        return Issued(f"t{self.issued}", self.lifetime)


async def test_one_token_is_shared_until_it_is_near_its_end(autojump_clock: trio.testing.MockClock) -> None:
    issuer = Issuer()
    tokens = IssuedTokens(issuer.ask, "where")
    got: list[str] = []

    async def take() -> None:
        got.append(await tokens.token())

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(take)
    await trio.sleep(94)
    assert await tokens.token() == "t1"
    await trio.sleep(2)
    assert await tokens.token() == "t2"
    assert got == ["t1"] * 5


async def test_the_next_one_is_asked_for_before_anybody_needs_it(autojump_clock: trio.testing.MockClock) -> None:
    issuer = Issuer()
    tokens = IssuedTokens(issuer.ask, "where")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tokens.run)
        await trio.sleep(69)
        assert issuer.issued == 1
        await trio.sleep(2)
        assert issuer.issued == 2
        issuer.down = True
        await trio.sleep(80)
        assert await tokens.token() == "t2"
        issuer.down = False
        await trio.sleep(6)
        assert issuer.issued == 3
        nursery.cancel_scope.cancel()


async def test_the_error_when_there_is_none(autojump_clock: trio.testing.MockClock) -> None:
    issuer = Issuer()
    tokens = IssuedTokens(issuer.ask, "the place")
    issuer.down = True
    with pytest.raises(OSError, match="the issuer is down"):
        await tokens.token()
    issuer.hangs = True
    with pytest.raises(OSError, match="no token within 10 s: see the place"):
        await tokens.token()
