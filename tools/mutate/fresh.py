"""Tries one mutant in a process of its own, for what is evaluated when its module is imported.

python -m tools.mutate.fresh PATH MUTANT TEST...
"""

import sys
from pathlib import Path

import pytest

from tools.mutate.instrument import Finder
from tools.mutate.mutants import Module
from tools.mutate.worker import OPTIONS, Deterministic


def main(path: str, name: str, *tests: str) -> int:
    """0 if all tests pass."""
    module = Module(path, Path(path).read_text())
    mutant = next(one for one in module.mutants if one.name == name)
    Finder({path: module.code(mutant)}).install()
    return int(pytest.main([*OPTIONS, "-x", *tests], plugins=[Deterministic()]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
