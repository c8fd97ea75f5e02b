"""Session fixtures of a folder end when a process goes to another folder: an idle broker takes processor time, too."""

from typing import Any

import pytest

_STARTED = pytest.StashKey[list[tuple[pytest.FixtureDef[Any], Any]]]()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> None:
    """Remember those that a folder's ``conftest.py`` defines."""
    if fixturedef.scope == "session" and fixturedef.baseid.startswith("tests/"):
        request.config.stash.setdefault(_STARTED, []).append((fixturedef, request))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Any:
    """End those that the next test cannot ask for; they begin again if a later one does."""
    result = yield
    started = item.config.stash.get(_STARTED, [])
    for one in [one for one in started if nextitem and not nextitem.nodeid.startswith(f"{one[0].baseid}/")]:
        started.remove(one)
        fixture, request = one
        fixture.finish(request)
    return result
