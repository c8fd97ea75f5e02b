"""One target under atheris, in a process of its own: libFuzzer ends it as soon as it has found something."""

import sys
from collections.abc import Sequence
from typing import Final

import atheris

#: What is instrumented: kproxy's own modules, and the parsers of others that it relies on.
_INSTRUMENTED: Final = ("kproxy", "h11", "jwt")


def run(name: str, options: Sequence[str]) -> None:
    """Fuzzes a target with libFuzzer's options; does not return. No module of kproxy may be imported before."""
    if any(module.partition(".")[0] in _INSTRUMENTED for module in sys.modules):
        raise RuntimeError("modules that were imported before can't be instrumented")
    with atheris.instrument_imports(include=list(_INSTRUMENTED)):
        from verification.fuzz.targets import TARGETS
    atheris.Setup([sys.argv[0], *options], TARGETS[name].check)
    atheris.Fuzz()


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
