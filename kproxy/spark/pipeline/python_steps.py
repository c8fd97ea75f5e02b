"""The functions of Python steps: found by reading their modules, which run only when Spark does."""

import ast
import importlib.util
from collections.abc import Collection, Iterator
from pathlib import Path
from zipfile import BadZipFile, ZipFile


class StepError(ValueError):
    """What is wrong with a step or a sink; the message is one line."""


def parameters(module: str, function: str, path: Path | None) -> tuple[str, ...]:
    """The names of what the function takes. ``path`` has the module, or it is installed; raises StepError."""
    where, source = _source(module, path)
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise StepError(f"{where}:{error.lineno}: {error.msg}") from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if function not in functions:
        raise StepError(f"{where} has no function {function}; it has: {', '.join(functions) or 'none'}")
    given = functions[function].args
    if given.vararg or given.kwarg or given.posonlyargs:
        raise StepError(f"{function} must name its parameters, each a source or a step: no *, ** or /")
    return tuple(argument.arg for argument in (*given.args, *given.kwonlyargs))


def module_files(path: Path, modules: Collection[str]) -> tuple[Path, ...]:
    """What a cluster's nodes need of a ``path``: the modules and those that they import from it, or the archive."""
    if not path.is_dir():
        return (path,)
    found: dict[str, Path] = {}
    wanted = list(modules)
    while wanted:
        name = wanted.pop()
        file = path / f"{name}.py"
        if name not in found and file.is_file():
            found[name] = file
            wanted += _imported(file.read_bytes())
    return tuple(sorted(found.values()))


def _imported(source: bytes) -> Iterator[str]:
    """The modules that a module names in an import, wherever that is."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _source(module: str, path: Path | None) -> tuple[str, bytes]:
    if path is not None and path.is_dir():
        file = path / f"{module}.py"
        if file.is_file():
            return str(file), file.read_bytes()
    elif path is not None and path.exists():
        found = _zipped(module, path)
        if found is not None:
            return f"{path}/{module}.py", found
    return _installed(module, path)


def _zipped(module: str, path: Path) -> bytes | None:
    try:
        with ZipFile(path) as archive:
            return archive.read(f"{module.replace('.', '/')}.py")
    except KeyError:
        return None
    except BadZipFile:
        raise StepError(f"{path} must be a directory or a zip archive") from None


def _installed(module: str, path: Path | None) -> tuple[str, bytes]:
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if found is None or not found.origin or not found.origin.endswith(".py"):
        where = f"neither in {path} nor installed" if path else "not installed: give 'path', where it is"
        raise StepError(f"the module {module} is {where}")
    return found.origin, Path(found.origin).read_bytes()
