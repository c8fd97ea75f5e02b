"""Compiles modules so that each statement of their functions says that it was reached."""

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

_REACHED: Final = "__reached__"
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_LISTS: Final = ("body", "orelse", "finalbody")


class _InFunctions(ast.NodeTransformer):
    """Puts a call before each statement of a function; lines stay as they are."""

    def __init__(self) -> None:
        self._depth = 0

    def generic_visit(self, node: ast.AST) -> ast.AST:
        is_function = isinstance(node, _FUNCTIONS)
        self._depth += is_function
        super().generic_visit(node)
        self._depth -= is_function
        if self._depth or is_function:
            for name in _LISTS:
                statements = getattr(node, name, None)
                if isinstance(statements, list) and statements:
                    setattr(node, name, _with_calls(statements))
        return node


def _with_calls(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for statement in statements:
        is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not is_docstring:
            call = ast.Call(ast.Name(_REACHED, ast.Load()), [ast.Constant(statement.lineno)], [])
            found.append(ast.copy_location(ast.Expr(call), statement))
        found.append(statement)
    return found


def instrumented(path: str, source: str) -> CodeType:
    """The module's code; it needs a global ``__reached__``, a function of a line's number."""
    tree = _InFunctions().visit(ast.parse(source))
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


class _Loader(SourceFileLoader):
    """Runs a code object in place of the file's."""

    def __init__(self, name: str, path: str, code: CodeType, reached: Callable[[int], None]) -> None:
        super().__init__(name, path)
        self._code, self._reached = code, reached

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[_REACHED] = self._reached
        exec(self._code, module.__dict__)


class Finder(MetaPathFinder):
    """Finds modules whose code is replaced, before anything else does."""

    def __init__(self, codes: Mapping[str, CodeType]) -> None:
        """``codes`` by path, relative to the working directory."""
        self._codes = {module_name(path): (path, code) for path, code in codes.items()}
        #: The lines that were reached since this was emptied last, by path.
        self.reached: dict[str, set[int]] = {path: set() for path in codes}

    def install(self) -> None:
        """From now on; none of the modules may be imported yet."""
        assert not self._codes.keys() & sys.modules.keys()
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """As importlib asks for it."""
        if fullname not in self._codes:
            return None
        file, code = self._codes[fullname]
        loader = _Loader(fullname, str(Path(file).resolve()), code, self.reached[file].add)
        return spec_from_file_location(fullname, Path(file).resolve(), loader=loader)


def module_name(path: str) -> str:
    """``kproxy/dedup/retry_rules.py`` is ``kproxy.dedup.retry_rules``."""
    return path.removesuffix(".py").replace("/", ".")
