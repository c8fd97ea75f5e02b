"""Announces this instance to its fleet, now and then."""

from collections.abc import Callable
from contextlib import suppress
from random import random
from typing import Final

import structlog
import trio

from kproxy.codec.version_choice import NoCommonVersion
from kproxy.config import Config
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.fleet_log import FleetLog
from kproxy.net.own_topic import Refused
from kproxy.proxy.announcements import Announcement, announcement_of, encode_value
from kproxy.proxy.facts import Status

log = structlog.get_logger("kproxy.fleet")

#: A whole fleet may start at once: its first announcements are spread over so much time.
_SPREAD_SECONDS: Final = 10.0
_FAREWELL_SECONDS: Final = 1.0


class Announcer:
    """Says every ``fleet.announce.interval.ms`` that this instance is there, and at its end that it has left."""

    def __init__(
        self, config: Config, cluster: Cluster, log: FleetLog, status: Callable[[], Status], host: str, http: str
    ) -> None:
        """``host``: the name of this machine; ``http``: where the status page is, or nothing."""
        self._config = config
        self._cluster = cluster
        self._log = log
        self._status = status
        self._host = host
        self._http = http

    async def run(self) -> None:
        """Announces until cancelled, or until the cluster refuses it."""
        interval = self._config.fleet_announce_interval_ms / 1000
        await trio.sleep(random() * min(interval, _SPREAD_SECONDS))
        while True:
            try:
                await self._log.announce(encode_value(self._announcement()))
            except Refused as refused:
                self._log.topic.warn_of_refusal(refused)
                return
            except NoCommonVersion:
                log.warning(
                    "this instance is not in kproxy fleet, and serves its clients as before: the brokers are too old "
                    "for the topic of announcements; set fleet.announce.interval.ms to 0"
                )
                return
            except (OSError, RemoteProtocolError):
                self._cluster.count_error("fleet")
            await trio.sleep(interval)

    def _announcement(self) -> Announcement:
        config = self._config
        return announcement_of(
            self._status(),
            host=self._host,
            listen=str(config.advertised_address or config.listen),
            http=self._http,
            interval_ms=config.fleet_announce_interval_ms,
        )

    async def leave(self) -> None:
        """Takes the announcement back, if that goes at once."""
        with trio.move_on_after(_FAREWELL_SECONDS), suppress(OSError, RemoteProtocolError, Refused):
            await self._log.withdraw()
