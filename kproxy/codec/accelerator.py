"""Compiled forms of the innermost functions, where the package of the folder ``accelerator`` is installed."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Final, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., object])
#: What the functions take, and what they are called. A package for another one is left alone.
_INTERFACE: Final = 1


def _installed() -> ModuleType | None:
    try:
        found = import_module("kproxy_accelerator")
    except ImportError:
        return None
    return found if found.INTERFACE == _INTERFACE else None


_PACKAGE: Final = _installed()


def accelerated(function: _Function) -> _Function:
    """The compiled form of a function, which calls the function itself for all but the usual case; or the function."""
    if _PACKAGE is None:
        return function
    made: _Function = _PACKAGE.compiled(function)
    return made
