"""Names of classes: what a reader of one module calls by a name is nothing else in another."""

import ast
from collections import defaultdict
from pathlib import Path
from typing import Final

import kproxy

ROOT: Final = Path(kproxy.__file__).parent
#: Where no class has the name of another one of kproxy. The fake broker names Kafka's things as Kafka does.
UNIQUE: Final = ("txn/", "net/txn/")
EXEMPT: Final = ("testing/", "codec/_generated/")
ALLOWED: Final = {
    "Producer": "the identity of Kafka's protocol, and one connection's Produce requests (kproxy/proxy/producing.py)",
    "Transaction": "what users of kproxy.client begin, and what kproxy's coordinator has open",
}


def classes() -> dict[str, list[str]]:
    """The modules of each public class, by its name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        module = path.relative_to(ROOT).as_posix()
        if not module.startswith(EXEMPT):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(module)
    return found


def test_a_class_of_transactions_has_a_name_of_its_own() -> None:
    twice = {
        name: modules
        for name, modules in classes().items()
        if len(modules) > 1 and any(module.startswith(UNIQUE) for module in modules)
    }
    assert {name: modules for name, modules in twice.items() if name not in ALLOWED} == {}
    assert twice.keys() == ALLOWED.keys(), "an exception that is none any more goes"
