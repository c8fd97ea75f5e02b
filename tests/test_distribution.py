"""The package's name at a registry."""

import tomllib
from pathlib import Path

import pytest

from kproxy import distribution

ROOT = Path(__file__).parents[1]


def test_the_package_is_built_under_its_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == distribution.NAME
    assert project["scripts"].keys() == {"kproxy"}


def test_extras_are_installed_from_a_clone_until_there_is_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "PUBLISHED", False)
    assert distribution.install_command("spark") == "pip install '.[spark]', in a clone of kproxy"
    monkeypatch.setattr(distribution, "PUBLISHED", True)
    assert distribution.install_command("spark") == "pip install 'kproxy-kafka[spark]'"


def test_nothing_tells_to_install_what_is_another_project_of_that_name() -> None:
    """``kproxy`` at the registry is foreign code."""
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "deploy").rglob("*"),
        *ROOT.glob("kproxy/**/*.py"),
    ]
    texts = {page: page.read_text(errors="replace") for page in pages if page.is_file()}
    assert len(texts) > 300
    wrong = ("kproxy[", "install kproxy\n", "install kproxy ", "kproxy==", "uvx kproxy", "pipx run kproxy")
    assert not [(page.name, word) for page, text in texts.items() for word in wrong if word in text]
