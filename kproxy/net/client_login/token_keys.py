"""The public keys of token issuers: a JSON Web Key Set (RFC 7517) from a file or a server."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import structlog
import trio

from kproxy.net.http_fetch import MOST_BYTES, fetch

log = structlog.get_logger("kproxy.login")

#: The least time between two requests for keys: clients must not make kproxy flood the server.
_PAUSE_SECONDS: Final = 10.0
_KINDS: Final = frozenset({"RSA", "EC", "OKP"})

#: A JSON Web Key of a set.
Key: TypeAlias = Mapping[str, Any]


class KeysError(Exception):
    """There are no keys; the text says why."""


def parse_keys(data: bytes) -> Sequence[Key]:
    """The keys of a set that can check signatures. ValueError if there are none."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES} bytes")
    said = json.loads(data)
    keys = said.get("keys") if isinstance(said, dict) else None
    if not isinstance(keys, list):
        raise ValueError('no JSON Web Key Set: {"keys": [...]}')
    good = [
        key for key in keys if isinstance(key, dict) and key.get("kty") in _KINDS and key.get("use") in (None, "sig")
    ]
    if not good:
        raise ValueError("no key in it is for signatures of RSA, EC or OKP")
    return good


class TokenKeys:
    """A key set, requested again when it is old or when a token has a key id that is not in it."""

    def __init__(self, url: str, refresh_ms: int, get: Callable[[str], bytes] = fetch) -> None:
        """``get`` may wait; it is called in a thread."""
        self._url = url
        self._refresh_seconds = refresh_ms / 1000
        self._get = get
        self._keys: Sequence[Key] = ()
        self._had_at = self._tried_at = -float("inf")
        self._asking = trio.Lock()
        self._failed = ""

    async def find(self, key_id: str | None) -> Key | None:
        """The key with this id; without an id the only key. None if there is none, KeysError if none can be fetched."""
        if trio.current_time() >= self._had_at + self._refresh_seconds:
            await self._ask()
        key = self._look(key_id)
        if key is None:
            await self._ask()
            key = self._look(key_id)
        if not self._keys:
            raise KeysError(self._failed)
        return key

    def _look(self, key_id: str | None) -> Key | None:
        fitting = [key for key in self._keys if key_id is None or key.get("kid") == key_id]
        return fitting[0] if len(fitting) == 1 else None

    async def _ask(self) -> None:
        async with self._asking:
            if trio.current_time() < self._tried_at + _PAUSE_SECONDS:
                return
            self._tried_at = trio.current_time()
            try:
                data = await trio.to_thread.run_sync(partial(self._get, self._url), abandon_on_cancel=True)
                self._keys = parse_keys(data)
            except (OSError, ValueError) as error:
                self._failed = f"keys from {self._url}: {error}"
                log.error("token keys are unavailable", url=self._url, reason=str(error), keys=len(self._keys))
            else:
                self._had_at = self._tried_at
                log.info("token keys loaded", url=self._url, keys=len(self._keys))
