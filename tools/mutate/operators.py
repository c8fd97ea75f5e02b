"""The changes: a statement is deleted, a condition becomes constant, an operand is dropped, a bound is off by one."""

import ast
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple


class Change(NamedTuple):
    """One change of a node."""

    what: str
    replacement: ast.AST
    #: What a test has to meet for the change to make a difference; None: the statement is enough.
    needs: str | None = None


#: What a comparison may become.
COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE,),
    ast.LtE: (ast.Lt,),
    ast.Gt: (ast.GtE,),
    ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq, ast.GtE, ast.LtE),
    ast.NotEq: (ast.Eq, ast.Gt, ast.Lt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_NAMES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LONGEST: Final = 100


def changes(node: ast.AST) -> Iterator[Change]:
    """What a node may become."""
    for kind, make in _BY_KIND.items():
        if isinstance(node, kind):
            yield from make(node)


def is_left_alone(node: ast.AST) -> bool:
    """Whether nothing at or under a node is changed: documentation, logs, assertions, what only type checkers read."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or _is_log(node.value)
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.annotation) == "TypeAlias"
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom)


def _is_log(node: ast.expr) -> bool:
    """Whether a call writes to the log, or to a trace, which is for people, too."""
    while isinstance(node, ast.Call | ast.Attribute):
        if isinstance(node, ast.Attribute) and node.attr == "traces":
            return True
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id == "log"


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _deleted(node: ast.AST) -> Iterator[Change]:
    """Statements that are run for what they do; locals would only be missing later."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else ()
    if targets and not any(isinstance(leaf, ast.Attribute | ast.Subscript) for leaf in map(_first_leaf, targets)):
        return
    if isinstance(node, ast.AnnAssign) and node.value is None:
        return
    yield Change(f"delete `{_text(node)}`", ast.copy_location(ast.Pass(), node))


def _first_leaf(target: ast.expr) -> ast.expr:
    return target.elts[0] if isinstance(target, ast.Tuple) else target


def _condition(node: Any) -> Iterator[Change]:
    """The test of ``if`` and of ``a if b else c``."""
    for value in (True, False):
        changed = _copy(node, test=ast.copy_location(ast.Constant(value), node.test))
        kind = "if" if isinstance(node, ast.If) else "choose"
        yield Change(f"{kind} {value} instead of `{_text(node.test)}`", changed, seen(node.test, not value))


def _loop(node: ast.While) -> Iterator[Change]:
    if not isinstance(node.test, ast.Constant):
        changed = _copy(node, test=ast.Constant(False))
        yield Change(f"while False instead of `{_text(node.test)}`", changed, seen(node.test, True))


def _filter(node: ast.comprehension) -> Iterator[Change]:
    for index, test in enumerate(node.ifs):
        changed = _copy(node, ifs=[*node.ifs[:index], *node.ifs[index + 1 :]])
        yield Change(f"no filter `{_text(test)}`", changed, seen(test, False))


def _operand(node: ast.BoolOp) -> Iterator[Change]:
    word = "and" if isinstance(node.op, ast.And) else "or"
    for index, value in enumerate(node.values):
        rest = [*node.values[:index], *node.values[index + 1 :]]
        changed = rest[0] if len(rest) == 1 else _copy(node, values=rest)
        what = f"drop `{_text(value)}` of `{word}` in `{_text(node)}`"
        # a constant is another value than the one before it, although it may be as true
        truth = bool(value.value) if isinstance(value, ast.Constant) else isinstance(node.op, ast.Or)
        yield Change(what, changed, seen(value, truth))


def _negation(node: ast.UnaryOp) -> Iterator[Change]:
    if isinstance(node.op, ast.Not):
        yield Change(f"`{_text(node)}` loses its not", node.operand)
    elif isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
        yield Change(f"`{_text(node)}` loses its minus", node.operand)


def _comparison(node: ast.Compare) -> Iterator[Change]:
    for index, operator in enumerate(node.ops):
        others = COMPARISONS[type(operator)]
        for other in others[:1] if _is_name(node.comparators[index]) else others:
            changed = _copy(node, ops=[*node.ops[:index], other(), *node.ops[index + 1 :]])
            yield Change(f"`{_text(node)}` becomes `{_text(changed)}`", changed, compared(node, other))


def seen(node: ast.expr, value: bool) -> str:
    """That an expression was true, or false."""
    return f"{_place(node)} {value}"


def compared(node: ast.Compare, other: type[ast.cmpop]) -> str | None:
    """That another comparison would have had another result; None: it always has, or there are several in one."""
    is_opposite = other in (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
    return None if is_opposite or len(node.ops) > 1 else f"{_place(node)} {other.__name__}"


def _place(node: ast.expr) -> str:
    return f"{node.lineno}.{node.col_offset}-{node.end_lineno}.{node.end_col_offset}"


def _is_name(node: ast.expr) -> bool:
    """Whether a text or a member of an enumeration is compared with: no order of these means anything."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes)
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.isupper()


def _arithmetic(node: ast.BinOp | ast.AugAssign) -> Iterator[Change]:
    other = _ARITHMETIC.get(type(node.op))
    if other is not None:
        changed = _copy(node, op=other())
        yield Change(f"`{_text(node)}` becomes `{_text(changed)}`", changed)


def _constant(node: ast.Constant) -> Iterator[Change]:
    if isinstance(node.value, bool):
        yield Change(f"{node.value} becomes {not node.value}", _copy(node, value=not node.value))
    elif isinstance(node.value, int | float):
        yield Change(f"{node.value} becomes {node.value + 1}", _copy(node, value=node.value + 1))


def _function(node: ast.Call) -> Iterator[Change]:
    if isinstance(node.func, ast.Name) and node.func.id in _NAMES:
        changed = _copy(node, func=ast.copy_location(ast.Name(_NAMES[node.func.id], ast.Load()), node.func))
        yield Change(f"`{_text(node)}` becomes {_NAMES[node.func.id]}", changed)


def _copy(node: Any, **fields: Any) -> Any:
    """A shallow copy with other fields."""
    return ast.copy_location(type(node)(**{**dict(ast.iter_fields(node)), **fields}), node)


_BY_KIND: Final[dict[Any, Callable[[Any], Iterator[Change]]]] = {
    (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete): _deleted,
    (ast.If, ast.IfExp): _condition,
    ast.While: _loop,
    ast.comprehension: _filter,
    ast.BoolOp: _operand,
    ast.UnaryOp: _negation,
    ast.Compare: _comparison,
    (ast.BinOp, ast.AugAssign): _arithmetic,
    ast.Constant: _constant,
    ast.Call: _function,
}
