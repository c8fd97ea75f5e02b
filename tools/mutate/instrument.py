"""Compiles modules so that each statement of their functions says that it was reached, and each condition its value."""

import ast
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from tools.mutate.operators import COMPARISONS, compared, seen

_REACHED: Final = "__reached__"
_SEEN: Final = "__seen__"
_COMPARED: Final = "__compared__"
_OPERATORS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_LISTS: Final = ("body", "orelse", "finalbody")


class _InFunctions(ast.NodeTransformer):
    """Puts a call before each statement of a function, and around its conditions; lines stay as they are."""

    def __init__(self) -> None:
        self._depth = 0
        #: What was met at the comparison with such a number: by the operator that would have had another result.
        self.comparisons: list[tuple[type[ast.cmpop], dict[type[ast.cmpop], str]]] = []

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.JoinedStr):
            return node
        is_function = isinstance(node, _FUNCTIONS)
        self._depth += is_function
        super().generic_visit(node)
        self._depth -= is_function
        if self._depth:
            if isinstance(node, ast.If | ast.IfExp | ast.While):
                node.test = _with_value(node.test)
            elif isinstance(node, ast.comprehension):
                node.ifs = [_with_value(test) for test in node.ifs]
            elif isinstance(node, ast.BoolOp):
                node.values = [_with_value(value) for value in node.values]
            elif isinstance(node, ast.Compare):
                return self._comparison(node)
        if self._depth or is_function:
            for name in _LISTS:
                statements = getattr(node, name, None)
                if isinstance(statements, list) and statements:
                    setattr(node, name, _with_calls(statements))
        return node

    def _comparison(self, node: ast.Compare) -> ast.expr:
        by = type(node.ops[0])
        met = {other: what for other in COMPARISONS[by] if (what := compared(node, other)) is not None}
        if not met:
            return node
        self.comparisons.append((by, met))
        number = ast.Constant(len(self.comparisons) - 1)
        call = ast.Call(ast.Name(_COMPARED, ast.Load()), [number, node.left, node.comparators[0]], [])
        return ast.copy_location(call, node)


def _with_value(node: ast.expr) -> ast.expr:
    names: list[ast.expr] = [ast.Constant(seen(node, False)), ast.Constant(seen(node, True))]
    return ast.copy_location(ast.Call(ast.Name(_SEEN, ast.Load()), [*names, node], []), node)


def _with_calls(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for statement in statements:
        is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not is_docstring:
            call = ast.Call(ast.Name(_REACHED, ast.Load()), [ast.Constant(statement.lineno)], [])
            found.append(ast.copy_location(ast.Expr(call), statement))
        found.append(statement)
    return found


class Instrumented:
    """A module's code, and the globals that it needs."""

    def __init__(self, path: str, source: str) -> None:
        """``source`` of the module at ``path``."""
        functions = _InFunctions()
        tree = functions.visit(ast.parse(source))
        self._comparisons = functions.comparisons
        self.code = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def globals(self, reached: Callable[[int | str], None]) -> dict[str, object]:
        """``reached`` is called with the line of each statement, and with what was met there."""

        def see(if_false: str, if_true: str, value: object) -> object:
            reached(if_true if value else if_false)
            return value

        def compare(number: int, left: object, right: object) -> bool:
            by, met = self._comparisons[number]
            result = _OPERATORS[by](left, right)
            for other, what in met.items():
                try:
                    differs = _OPERATORS[other](left, right) is not result
                except TypeError:  # some have no order
                    differs = True
                if differs:
                    reached(what)
            return result

        return {_REACHED: reached, _SEEN: see, _COMPARED: compare}


class _Loader(SourceFileLoader):
    """Runs a code object in place of the file's."""

    def __init__(self, name: str, path: str, code: CodeType, names: Mapping[str, object]) -> None:
        super().__init__(name, path)
        self._code, self._names = code, names

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update(self._names)
        exec(self._code, module.__dict__)


class Finder(MetaPathFinder):
    """Finds modules whose code is replaced, before anything else does."""

    def __init__(self, codes: Mapping[str, CodeType | Instrumented]) -> None:
        """``codes`` by path, relative to the working directory."""
        self._codes = {module_name(path): (path, code) for path, code in codes.items()}
        #: The lines that were reached, and what was met there, since this was emptied last, by path.
        self.reached: dict[str, set[int | str]] = {path: set() for path in codes}

    def install(self) -> None:
        """From now on; none of the modules may be imported yet."""
        assert not self._codes.keys() & sys.modules.keys()
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """As importlib asks for it."""
        if fullname not in self._codes:
            return None
        file, code = self._codes[fullname]
        names: Mapping[str, object] = {}
        if isinstance(code, Instrumented):
            code, names = code.code, code.globals(self.reached[file].add)
        loader = _Loader(fullname, str(Path(file).resolve()), code, names)
        return spec_from_file_location(fullname, Path(file).resolve(), loader=loader)


def module_name(path: str) -> str:
    """``kproxy/dedup/retry_rules.py`` is ``kproxy.dedup.retry_rules``."""
    return path.removesuffix(".py").replace("/", ".")
