"""Where a secret is: in a file, or in an environment variable. An option names the place, never the secret."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kproxy.config.values import optional

_VARIABLE: Final = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
#: The most that is read of a file: a password is one line.
_MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SecretLocation:
    """A file, or the name of a variable; one of them is given."""

    path: Path | None = None
    variable: str | None = None

    def __str__(self) -> str:
        return f"env:{self.variable}" if self.path is None else str(self.path)

    def read(self) -> str:
        """The first line of the file or variable, read now. OSError says what is missing, without the content."""
        try:
            text = self._text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else "it is no UTF-8 text"
            raise OSError(f"{self}: {why}") from None
        line = text.partition("\n")[0].rstrip("\r")
        if not line:
            raise OSError(f"{self}: its first line is empty" if self.path else f"{self}: there is no such variable")
        return line

    def _text(self) -> str:
        if self.path is None:
            return os.environ.get(self.variable or "", "")
        with self.path.open("rb") as file:
            return file.read(_MOST_BYTES).decode()


def _parse(text: str) -> SecretLocation:
    match = _VARIABLE.fullmatch(text)
    if match:
        return SecretLocation(variable=match[1])
    if not text.startswith("/") or "\0" in text:
        raise ValueError("must be the absolute path of a file, env:VARIABLE, or off; never the secret itself")
    return SecretLocation(path=Path(text))


SECRET: Final = optional("absolute path, env:VARIABLE or off", _parse, "WHERE", secret=True)
