"""The mutants of a module: its syntax tree with one change each, under names that edits elsewhere do not change."""

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any, Final, NamedTuple

from tools.mutate.operators import changes, is_left_alone

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


class Unit(NamedTuple):
    """The outermost function around a mutant, as its code object names it."""

    qualname: str
    first_line: int


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change. ``name`` is unique within the module, and says what was changed and where."""

    name: str
    #: The first line of the statement that is changed, in the original source.
    line: int
    #: None for what runs when the module is imported: constants, defaults of fields and parameters.
    unit: Unit | None
    #: The names that the changed statement assigns, where ``unit`` is None.
    assigns: tuple[str, ...]
    #: A digest of the function around it, or of the statement, as it was before the change.
    source: str
    #: As of a ``Change``; without a ``unit`` it counts for nothing.
    needs: str | None
    slot: "Slot" = field(compare=False)
    replacement: ast.AST = field(compare=False)


class Slot(NamedTuple):
    """A place in a syntax tree."""

    parent: ast.AST
    field: str
    index: int | None

    def put(self, node: Any) -> Any:
        """Puts a node there; returns the one that it replaces."""
        if self.index is None:
            old = getattr(self.parent, self.field)
            setattr(self.parent, self.field, node)
            return old
        nodes = getattr(self.parent, self.field)
        old, nodes[self.index] = nodes[self.index], node
        return old


class Module:
    """A module's source and its mutants."""

    def __init__(self, path: str, source: str) -> None:
        """``path``, relative to the project's root, is what code objects name as their file."""
        self.path = path
        self._tree = ast.parse(source)
        self.mutants: Sequence[Mutant] = _named(_Walk().module(self._tree))

    def code(self, mutant: Mutant) -> CodeType:
        """The whole module, mutated and compiled."""
        old = mutant.slot.put(mutant.replacement)
        try:
            return compile(ast.fix_missing_locations(self._tree), self.path, "exec", dont_inherit=True)
        finally:
            mutant.slot.put(old)

    def constant(self, mutant: Mutant) -> CodeType | None:
        """The mutated assignment of a private constant that only functions read: it can be run in the loaded module."""
        (name, *others) = mutant.assigns or ("",)
        statement = next((one for one in self._tree.body if one.lineno == mutant.line), None)
        if mutant.unit is not None or others or not name.startswith("_"):
            return None
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            return None
        if any(name in _read_at_import(one) for one in self._tree.body if one is not statement):
            return None
        old = mutant.slot.put(mutant.replacement)
        try:
            return compile(ast.Module([ast.fix_missing_locations(statement)], []), self.path, "exec", dont_inherit=True)
        finally:
            mutant.slot.put(old)

    def lines_that_mention(self, names: Sequence[str]) -> set[int]:
        """The first lines of all statements in which one of these names is read."""
        found: set[int] = set()
        for statement in ast.walk(self._tree):
            if isinstance(statement, ast.stmt):
                used = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
                used |= {node.attr for node in ast.walk(statement) if isinstance(node, ast.Attribute)}
                if used.intersection(names):
                    found.add(statement.lineno)
        return found


def _read_at_import(node: ast.AST) -> Iterator[str]:
    """The names that are read outside of functions, or by a lambda."""
    if isinstance(node, ast.Name):
        yield node.id
    body = node.body if isinstance(node, _FUNCTIONS) else ()
    for child in ast.iter_child_nodes(node):
        if child not in body:
            yield from _read_at_import(child)


def function_code(code: CodeType, unit: Unit) -> CodeType | None:
    """The code object of a function within that of its module."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if (constant.co_qualname, constant.co_firstlineno) == unit:
                return constant
            if (found := function_code(constant, unit)) is not None:
                return found
    return None


def _named(found: Iterator[Mutant]) -> list[Mutant]:
    """Numbers those that would have the same name, in their order."""
    seen: Counter[str] = Counter()
    rows: list[Mutant] = []
    for one in found:
        seen[one.name] += 1
        name = one.name if seen[one.name] == 1 else f"{one.name} ({seen[one.name]})"
        rows.append(replace(one, name=name))
    return rows


class _Walk:
    """Walks a module, and knows at each node in which function and statement it is."""

    def __init__(self) -> None:
        self._path: list[str] = []
        self._unit: Unit | None = None
        self._line = 0
        self._assigns: tuple[str, ...] = ()
        self._source = ""

    def module(self, tree: ast.Module) -> Iterator[Mutant]:
        yield from self._children(tree)

    def _children(self, node: ast.AST) -> Iterator[Mutant]:
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list"}:
                continue
            if isinstance(value, ast.AST):
                yield from self._node(Slot(node, name, None), value)
            elif isinstance(value, list):
                for index, one in enumerate(value):
                    if isinstance(one, ast.AST):
                        yield from self._node(Slot(node, name, index), one)

    def _node(self, slot: Slot, node: ast.AST) -> Iterator[Mutant]:
        if is_left_alone(node):
            return
        if isinstance(node, ast.stmt):
            self._line = node.lineno
            if self._unit is None:
                self._assigns = _assigned(node)
                self._source = hashlib.sha256(ast.dump(node).encode()).hexdigest()[:16]
        for what, replacement, needs in () if _is_about(self._assigns) and self._unit is None else changes(node):
            where = ".".join([*self._path, *(() if self._unit is not None else self._assigns)]) or "module"
            yield Mutant(
                f"{where}: {what}", self._line, self._unit, self._assigns, self._source, needs, slot, replacement
            )
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            yield from self._scope(node)
        else:
            yield from self._children(node)

    def _scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[Mutant]:
        outermost = self._unit is None and isinstance(node, _FUNCTIONS)
        if isinstance(node, _FUNCTIONS):
            self._assigns = (node.name,)
            yield from self._node(Slot(node, "args", None), node.args)  # defaults belong to the scope outside
        self._path.append(node.name)
        if outermost:
            first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            self._unit = Unit(".".join(self._path), first)
        for index, statement in enumerate(node.body):
            yield from self._node(Slot(node, "body", index), statement)
        if outermost:
            self._unit = None
        self._path.pop()


def _is_about(names: Sequence[str]) -> bool:
    """Whether a constant is a time or a size, of which one more or less makes no difference."""
    return any(re.search(r"(_S|_MS|_SECONDS|_BYTES)$|^_?MOST_", name) for name in names)


def _assigned(node: ast.stmt) -> tuple[str, ...]:
    """The names that a statement at module or class level binds."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return tuple(target.id for target in targets if isinstance(target, ast.Name))
