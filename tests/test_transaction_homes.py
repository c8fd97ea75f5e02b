"""Who decides an id's transactions is asked in one place; what follows is a value or a method of its owner."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import kproxy

ROOT: Final = Path(kproxy.__file__).parent
FOLDERS: Final = ("txn", "net", "proxy", "control", "tracing")
#: The question by its names, and the modules that may ask it.
QUESTION: Final = frozenset(
    {
        "Home",
        "any_at_broker",
        "by_home",
        "home",
        "home_of",
        "is_at_broker",
        "is_at_broker_by_rule",
        "is_broker",
        "is_kproxy",
        "is_kproxys",
        "keeps_at_broker",
    }
)
CHOOSERS: Final = {
    "proxy/coordinator_rules.py": "the rules of transactions.home",
    "proxy/context.py": "whether a client's request is relayed or kproxy's to answer",
    "net/txn/coordinator.py": "the owners of an id",
    "net/txn/service.py": "puts together what there is for each home",
    "txn/procedures/members.py": "who keeps a member's data from readers",
    "txn/procedures/member_control.py": "reports that",
}
#: The question whether a request is relayed: a session has it, and what serves all sessions has not.
OF_SESSIONS: Final = frozenset({"decides_transactions", "is_home_of"})
#: Classes of which each home has its own: nobody asks which one an object is.
OF_ONE_HOME: Final = frozenset(
    {
        "BrokerControl",
        "BrokerMember",
        "BrokerMembers",
        "BrokerOwner",
        "BrokerOwners",
        "LogControl",
        "LogOwner",
        "LogOwners",
        "PlainMembers",
        "TransactionAtBroker",
        "TransactionAtLog",
    }
)


def _names(node: ast.AST) -> set[str]:
    """The last names of a name, of an attribute, and of several of them."""
    return {
        found.id if isinstance(found, ast.Name) else found.attr
        for found in ast.walk(node)
        if isinstance(found, ast.Name | ast.Attribute)
    }


def asked(source: str) -> Iterator[str]:
    """The names of the questions that a module asks."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name | ast.Attribute):
            yield from _last(node) & (QUESTION | OF_SESSIONS)
        elif isinstance(node, ast.MatchClass):
            yield from _last(node.cls) & OF_ONE_HOME
        elif isinstance(node, ast.Call) and _last(node.func) & {"isinstance", "issubclass"}:
            yield from _names(node.args[1]) & OF_ONE_HOME
        elif isinstance(node, ast.Compare) and any("type" in _last(part) for part in _called(node)):
            yield from _names(node) & OF_ONE_HOME


def _last(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Name):
        return {node.id}
    return {node.attr} if isinstance(node, ast.Attribute) else set()


def _called(node: ast.AST) -> Iterator[ast.AST]:
    return (found.func for found in ast.walk(node) if isinstance(found, ast.Call))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("rule.home.is_broker", {"home", "is_broker"}),
        ("coordinator.is_at_broker(name)", {"is_at_broker"}),
        ("by_home(1, 2)", {"by_home"}),
        ("isinstance(owner, LogOwner | owners.BrokerOwner)", {"LogOwner", "BrokerOwner"}),
        ("isinstance(owner, (Other, LogOwner))", {"LogOwner"}),
        ("type(owner) is LogOwner", {"LogOwner"}),
        ("match owner:\n    case BrokerOwner():\n        pass", {"BrokerOwner"}),
        ("ctx.is_home_of(name)", {"is_home_of"}),
        ("owner = LogOwner(name)", set()),
        ("owner.decide()", set()),
    ],
)
def test_questions_are_found(source: str, found: set[str]) -> None:
    assert set(asked(source)) == found


def test_only_what_chooses_asks_who_decides() -> None:
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = path.relative_to(ROOT).as_posix()
            names = set(asked(path.read_text()))
            if folder == "proxy":
                names -= OF_SESSIONS
            if names:
                found[module] = names
    assert {module: names for module, names in found.items() if module not in CHOOSERS} == {}
    assert found.keys() == CHOOSERS.keys(), "a module that does not ask any more goes"
    assert not any(names & OF_ONE_HOME for names in found.values())
