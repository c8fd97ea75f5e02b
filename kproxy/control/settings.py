"""The configuration in force, and how it is read again while kproxy runs."""

from collections.abc import Callable
from typing import Any

import structlog
import trio

from kproxy.config import Changed, Config, ConfigError, Loaded, Reload, merge, options, show

log = structlog.get_logger("kproxy.control")

_OPTIONS = options(Config)


class Settings:
    """Reads the sources again on request, and passes the new configuration to its followers."""

    def __init__(self, loaded: Loaded, read: Callable[[], Loaded]) -> None:
        """``read`` reads the same file, environment and flags as at the start. ConfigError if they can't be used."""
        self.loaded = loaded
        self._read = read
        self._followers: list[Callable[[Config], None]] = []
        self._reloading = trio.Lock()

    @property
    def config(self) -> Config:
        return self.loaded.config

    def follow(self, apply: Callable[[Config], None]) -> None:
        """``apply`` is called with each configuration that comes into force; it must not fail."""
        self._followers.append(apply)

    async def reload(self) -> Reload:
        """Applies what needs no restart. ConfigError: nothing has changed."""
        async with self._reloading:
            try:
                wanted = await trio.to_thread.run_sync(self._read)  # the file may lie on a disk that is slow
                reload = merge(self.loaded, wanted)
            except ConfigError as error:
                log.error("configuration not reloaded; nothing has changed", problems=error.problems)
                raise
            self.loaded = reload.loaded
            for apply in self._followers:
                apply(self.config)
            log.info("configuration reloaded", **_told(reload))
            return reload


def _told(reload: Reload) -> dict[str, Any]:
    """For the log: option, and what it was and is."""
    texts = {
        name: {each.option.name: f"{show(each.before)} -> {show(each.after)}" for each in changed}
        for name, changed in (("applied", reload.applied), ("restart_needed", reload.waiting))
    }
    return {**texts, "unchanged": len(reload.unchanged)}


def config_json(loaded: Loaded) -> dict[str, Any]:
    """Every option with its value, its source, and when another value would take effect."""
    rows = [
        {
            "name": name,
            "value": _plain(getattr(loaded.config, entry.attribute)),
            "unit": entry.kind.unit,
            "source": loaded.sources[name],
            "change": entry.change.value,
        }
        for name, entry in _OPTIONS.items()
    ]
    return {"options": rows}


def reload_json(reload: Reload) -> dict[str, Any]:
    """What was applied, what needs a restart, and what is as it was."""
    return {
        "applied": [_changed_json(each) for each in reload.applied],
        "restart_needed": [_changed_json(each) for each in reload.waiting],
        "unchanged": list(reload.unchanged),
    }


def _changed_json(changed: Changed) -> dict[str, Any]:
    return {
        "name": changed.option.name,
        "before": _plain(changed.before),
        "after": _plain(changed.after),
        "change": changed.option.change.value,
    }


def _plain(value: object) -> bool | int | str:
    return value if isinstance(value, bool | int) else show(value)
