"""The package under its name at a registry, and the command that installs its extras.

The name ``kproxy`` is another project's there, so that ``pip install kproxy`` brings foreign code.
"""

from typing import Final

#: As in pyproject.toml. The command and what Python imports are ``kproxy``.
NAME: Final = "kproxy-kafka"
#: Whether the registry has a release; until then the package is installed from a clone of the repository.
PUBLISHED: Final = False


def install_command(extra: str) -> str:
    """The command that installs kproxy with one of its extras, and where to type it."""
    return f"pip install '{NAME}[{extra}]'" if PUBLISHED else f"pip install '.[{extra}]', in a clone of kproxy"
