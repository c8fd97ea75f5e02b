"""Compiled forms of the innermost functions, where the package of the folder ``accelerator`` is installed."""

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Final, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., object])
#: What the functions take, and what they are called. A package for another one is left alone.
_INTERFACE: Final = 3

#: A variable of the environment and no option: functions are chosen when modules are imported, before options are read.
SWITCH: Final = "KPROXY_ACCELERATOR"
SWITCHED_OFF: Final = "off"
#: What the switch may say.
SWITCH_VALUES: Final = ("on", SWITCHED_OFF)


def _installed(environ: Mapping[str, str]) -> tuple[ModuleType | None, str]:
    """The package, if it is to be used; and whether it is, as operators read it."""
    if environ.get(SWITCH) == SWITCHED_OFF:
        return None, "switched off"
    try:
        found = import_module("kproxy_accelerator")
    except ImportError:
        return None, "not installed"
    return (found, "in use") if found.INTERFACE == _INTERFACE else (None, "of another version")


_PACKAGE, STATE = _installed(os.environ)
"""``STATE``: in use, not installed, switched off, or of another version."""


def accelerated(function: _Function) -> _Function:
    """The compiled form of a function, which calls the function itself for all but the usual case; or the function."""
    if _PACKAGE is None:
        return function
    made: _Function = _PACKAGE.compiled(function)
    return made
