"""The yardstick: a byte relay on trio's own SocketStream, as a straightforward programmer writes it.

It knows nothing of Kafka, so what it costs is what any trio proxy pays for moving the bytes.
"""

import sys
from functools import partial

import trio

CHUNK_BYTES = 64 * 1024


async def _pump(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    try:
        while chunk := await source.receive_some(CHUNK_BYTES):
            await sink.send_all(chunk)
        await sink.send_eof()
    except trio.BrokenResourceError:
        await source.aclose()


async def _serve(upstream_port: int, client: trio.SocketStream) -> None:
    async with await trio.open_tcp_stream("127.0.0.1", upstream_port) as upstream, trio.open_nursery() as nursery:
        nursery.start_soon(_pump, client, upstream)
        nursery.start_soon(_pump, upstream, client)


async def relay(port: int, upstream_port: int) -> None:
    """Relay connections to `port` on to `upstream_port`, both on the loopback address, until cancelled."""
    await trio.serve_tcp(partial(_serve, upstream_port), port, host="127.0.0.1")


if __name__ == "__main__":
    trio.run(relay, int(sys.argv[1]), int(sys.argv[2]))
