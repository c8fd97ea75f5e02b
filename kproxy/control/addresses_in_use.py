"""The addresses that a kproxy is to listen at, and the wait for a process that drains and listens there still."""

import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog
import trio

from kproxy.config import Address, Config

log = structlog.get_logger("kproxy.app")

_PAUSE_SECONDS: Final = 0.1


async def until_free(config: Config) -> None:
    """Waits until nobody listens where these options say, for as long as an orderly stop may take.

    After that nothing is raised: the part of kproxy that listens there reports the error.
    """
    patience_s = (config.shutdown_delay_ms + config.shutdown_grace_ms) / 1000
    told = False
    with trio.move_on_after(patience_s):
        while (taken := next(_taken(config), None)) is not None:
            if not told:
                log.warning(
                    "another process listens at an address of this one; waiting until it has ended",
                    option=taken[0],
                    address=str(taken[1]),
                    seconds=patience_s,
                    advice="a kproxy that drains ends by itself; with handover.socket and --replace nobody waits",
                )
                told = True
            await trio.sleep(_PAUSE_SECONDS)


def _taken(config: Config) -> Iterator[tuple[str, Address | Path]]:
    for option, place in places(config):
        if isinstance(place, Path):
            is_taken = place.is_socket() and is_listening(place)
        else:
            error = refusal(place)
            is_taken = error is not None and error.errno == errno.EADDRINUSE
        if is_taken:
            yield option, place


def places(config: Config) -> Iterator[tuple[str, Address | Path]]:
    """The addresses and socket files at which kproxy listens, by option, without the ports of brokers."""
    for option, place in (
        ("listen", config.listen),
        ("http", config.http),
        ("control.socket", config.control_socket),
        ("control.http", config.control_http),
        ("handover.socket", config.handover_socket),
    ):
        if place is not None:
            yield option, place


def refusal(address: Address) -> OSError | None:
    """Why nobody can listen there; None if one can. The address is taken for a moment, and no client can connect."""
    kind = socket.AF_INET6 if ":" in address.host or not address.host else socket.AF_INET
    try:
        with socket.socket(kind, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.host, address.port))
    except OSError as error:
        return None if error.errno == errno.EAFNOSUPPORT else error
    return None


def is_listening(path: Path) -> bool:
    """Whether a living process listens at a socket file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # A process whose queue is full must not be waited for.
        probe.setblocking(False)
        return probe.connect_ex(str(path)) != errno.ECONNREFUSED
