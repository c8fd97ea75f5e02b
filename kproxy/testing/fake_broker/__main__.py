"""Run a fake cluster until interrupted: ``python -m kproxy.testing.fake_broker --port 9092 --brokers 3``."""

import argparse
import signal
import sys

import trio

from kproxy.testing.fake_broker.fake_server import open_fake_cluster


async def _run(host: str, port: int, brokers: int) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with open_fake_cluster(brokers, host=host, port=port) as server:
            sys.stdout.write(f"{server.bootstrap}\n")
            sys.stdout.flush()
            async for _ in signals:
                return


def main() -> None:
    """Parse the arguments, print the brokers' addresses as one line, serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m kproxy.testing.fake_broker", description="A Kafka in memory.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port of the first broker (default: any)")
    parser.add_argument("--brokers", type=int, default=1, help="number of brokers (default: %(default)s)")
    arguments = parser.parse_args()
    trio.run(_run, arguments.host, arguments.port, arguments.brokers)


if __name__ == "__main__":
    main()
