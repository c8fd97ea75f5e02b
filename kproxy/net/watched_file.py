"""A file that is read again when it changes; while it cannot be used, the old content stays in force."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

import structlog
import trio

from kproxy.config import ConfigError, ExitCode, StartupError
from kproxy.net.file_stamps import file_stamps

log = structlog.get_logger("kproxy.files")

_LOOK_SECONDS: Final = 1.0
_Content = TypeVar("_Content")


class WatchedFile(Generic[_Content]):
    """The content of a file, as its reader understands it; ``use`` is called with each new content."""

    def __init__(self, path: Path, read: Callable[[Path], _Content], option: str) -> None:
        """``path`` is the value of ``option``; ``read`` raises ConfigError. StartupError if the file cannot be used."""
        self.use: Callable[[_Content], object] = lambda content: None
        self._path = path
        self._read = read
        self._option = option
        self._seen = file_stamps([self._path])
        try:
            self.content = read(path)
        except ConfigError as error:
            raise StartupError("; ".join(error.problems), ExitCode.USAGE) from None

    async def watch(self) -> None:
        """Checks the file about once a second, until cancelled."""
        while True:
            await trio.sleep(_LOOK_SECONDS)
            await self.reload()

    async def reload(self) -> bool:
        """Checks the file at once; True if it has a new content that can be used."""
        seen = file_stamps([self._path])
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            # the loop continues meanwhile: a long file takes a while to parse
            self.content = await trio.to_thread.run_sync(self._read, self._path)
        except ConfigError as error:
            log.error("file cannot be used; keeping the old content", option=self._option, problems=error.problems)
            return False
        log.info("file loaded again", option=self._option, file=str(self._path))
        self.use(self.content)
        return True
