"""``kproxy txn log``: the transaction log as it stands on the brokers, one line for each record."""

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, NamedTuple

import trio

from kproxy.cli.output import waiting
from kproxy.codec.protocol_struct import ProtocolStruct
from kproxy.config import Config, ExitCode
from kproxy.control.logging import configure_logging
from kproxy.errors import KproxyError, RemoteProtocolError
from kproxy.net.broker_sasl.sasl_networks import open_networks
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.own_topic import Refused
from kproxy.net.txn.log_follower import LogFollower
from kproxy.net.txn.log_topic import TOPIC, transaction_topic
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.stats import Stats
from kproxy.txn.log_records import decode
from kproxy.txn.text import describe


class RecordFilter(NamedTuple):
    """Which records are printed; None: all."""

    transactional_id: str | None = None
    partition: int | None = None


class _NobodyReads(KproxyError):
    """The reader of the output has closed it, as ``| head`` does."""


class Printer:
    """Writes a line for each record that the filter lets through (``log_partition.LogSink``)."""

    def __init__(self, only: RecordFilter, as_json: bool, write: Callable[[str], None]) -> None:
        """``write`` takes whole lines."""
        self._filter = only
        self._line = _json_line if as_json else _text_line
        self._write = write

    def restart(self, partition: int, start: int) -> None:
        """Prints nothing: earlier lines stay true."""

    def apply(
        self,
        partition: int,
        offset: int,
        timestamp_ms: int,
        producer_id: int,
        epoch: int,
        key: bytes | None,
        value: bytes | None,
    ) -> None:
        if self._filter.partition not in (None, partition):
            return
        if self._filter.transactional_id not in (None, _transactional_id(key, value)):
            return
        position = _RecordPosition(partition, offset, timestamp_ms, producer_id, epoch)
        try:
            self._write(self._line(position, key, value))
        except BrokenPipeError:
            raise _NobodyReads from None

    def advanced(self, partition: int, end: int) -> None:
        """Prints nothing."""


class _RecordPosition(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int
    producer_id: int
    epoch: int


def print_log(config: Config, only: RecordFilter, *, follow: bool, as_json: bool) -> int:
    """Prints the records of the log, and with ``follow`` new ones as they come; returns the exit code.

    KproxyError if no broker can be reached or the log can't be read.
    """
    configure_logging("warning", "console")

    def write(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        if follow:
            sys.stdout.flush()

    # On a terminal the lines themselves are the progress.
    progress = nullcontext() if follow or sys.stdout.isatty() else waiting("Reading the transaction log")
    try:
        with progress:
            trio.run(_main, config, Printer(only, as_json, write), follow)
        sys.stdout.flush()
    except* (_NobodyReads, BrokenPipeError):
        # What is left in the buffer has to go somewhere, else Python complains at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.OK


async def _main(config: Config, printer: Printer, follow: bool) -> None:
    stats = Stats()
    cluster = Cluster(config, stats.upstream, ClusterMap(), open_networks(config, stats).own)
    topic = transaction_topic(cluster, config)
    try:
        await _check_that_it_is_there(cluster, config)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_stopped, nursery.cancel_scope)
            follower = LogFollower(cluster, config, topic, printer)
            await nursery.start(follower.run)
            if follow:
                await trio.sleep_forever()
            await follower.loaded()
            nursery.cancel_scope.cancel()
    finally:
        cluster.close()


async def _until_stopped(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
            return


async def _check_that_it_is_there(cluster: Cluster, config: Config) -> None:
    """KproxyError if no broker has the topic: the follower would create it, and search for brokers without end."""
    try:
        await cluster.refresh()
        there = await transaction_topic(cluster, config).exists()
    except (OSError, RemoteProtocolError, Refused) as error:
        raise KproxyError(f"cannot read the transaction log: {error}") from None
    if not there:
        raise KproxyError(f"there is no topic {TOPIC}: no kproxy has begun a transaction on this cluster")


def _transactional_id(key: bytes | None, value: bytes | None) -> str | None:
    try:
        return decode(key, value).transactional_id
    except RemoteProtocolError:
        return None


def _text_line(position: _RecordPosition, key: bytes | None, value: bytes | None) -> str:
    moment = datetime.fromtimestamp(position.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return f"{moment} {position.partition}:{position.offset} {describe(key, value)}"


def _json_line(position: _RecordPosition, key: bytes | None, value: bytes | None) -> str:
    line: dict[str, Any] = position._asdict()
    try:
        entry = decode(key, value)
        line |= {"kind": entry.kind.name, "transactional_id": entry.transactional_id, "body": _plain(entry.body)}
    except RemoteProtocolError as error:
        line |= {"kind": None, "unreadable": str(error), "key": _plain(key), "value": _plain(value)}
    return json.dumps(line)


def _plain(value: Any) -> Any:
    """A message for JSON: bytes in hexadecimal, without unknown tags."""
    if isinstance(value, ProtocolStruct):
        return {name: _plain(getattr(value, name)) for name in value.__slots__ if name != "unknown_tags"}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return bytes(value).hex() if isinstance(value, (bytes, bytearray, memoryview)) else value
