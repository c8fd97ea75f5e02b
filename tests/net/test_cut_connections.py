"""Producers whose connection is cut, on real sockets: the kernel drops each packet that reaches them."""

import pytest
import trio

from kproxy.net import retry_ledger_keeper
from tests.net.byte_io import cut_off
from tests.net.harness import FrameClient, Proxied, errors_of, eventually, proxied, values_in
from tests.net.retrying import Gate, bases, batch, end, request


async def send_and_cut(proxy: Proxied, message: object) -> FrameClient:
    """A request whose response does not reach its client; neither end learns that the connection is cut."""
    client = await proxy.client(1)
    gate = Gate(proxy)
    await client.send(message, 8)  # type: ignore[arg-type]
    await gate.wait_reached()
    assert isinstance(client.stream, trio.SocketStream)
    cut_off(client.stream.socket)
    gate.release()
    return client


@pytest.mark.parametrize("limit_ms", [300, 600_000], ids=["limited", "as without a limit"])
async def test_a_connection_that_owes_a_response_ends_by_the_time_its_client_retries(
    limit_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux sends no keepalive probes while data are unacknowledged. In the second case the retry itself shows it."""
    monkeypatch.setattr(retry_ledger_keeper, "_UNACKNOWLEDGED_MS", limit_ms)
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        message = request(batch(b"a"))
        cut = await send_and_cut(proxy, message)
        if limit_ms < 1000:
            await eventually(lambda: not proxy.stats.clients.connections_open)
        async with await proxy.client(1) as client:
            answer = await client.call(message, 8)
        assert errors_of(answer) == [0]
        assert (bases(answer), values_in(proxy.brokers, "t")) == ([0], [b"a"])
        await end(cut, reset=True)
