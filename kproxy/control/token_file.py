"""The token of the control API."""

from pathlib import Path
from typing import Final

from kproxy.config import Config, StartupError

_TOKEN_LENGTHS: Final = range(16, 1025)


def open_token(config: Config) -> bytes | None:
    """The token of ``control.token.file``; None if no listener asks for one. StartupError."""
    file = config.control_token_file
    return None if file is None or (config.http is None and config.control_http is None) else read_token(file)


def read_token(path: Path) -> bytes:
    """The token in a file. StartupError if it cannot be read, or has not 16 to 1024 printable characters."""
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        raise StartupError(f"cannot read control.token.file = '{path}': {error.strerror}") from None
    if len(token) not in _TOKEN_LENGTHS or not all(0x21 <= byte <= 0x7E for byte in token):
        raise StartupError(f"control.token.file = '{path}' must hold 16 to 1024 printable characters without spaces")
    return token
