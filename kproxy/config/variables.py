"""Environment variables in values: ``${NAME}``, ``${NAME:-default}``, and ``$${`` for what is to stay as it is."""

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(?:(\$)\{|\{([^{}]*)\})")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def expand(text: str, environ: Mapping[str, str]) -> str:
    """The text with its variables replaced; as in a shell, an empty variable has the default too.

    ValueError names a variable that is not set and has no default, and what is no name.
    """

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return "${"
        name, with_default, default = found[2].partition(":-")
        if not _NAME.fullmatch(name):
            raise ValueError(f"${{{found[2]}}} is no variable: write ${{NAME}} or ${{NAME:-default}}")
        if with_default:
            return environ.get(name) or default
        if name not in environ:
            raise ValueError(f"the environment has no {name}: set it, or write ${{{name}:-default}}")
        return environ[name]

    return _REFERENCE.sub(value, text)
