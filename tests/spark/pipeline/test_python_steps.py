from pathlib import Path
from zipfile import ZipFile

import pytest

from kproxy.spark.pipeline.python_steps import StepError, module_files, parameters


def test_in_a_directory(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("def f(a, *, b): ...\n")
    (tmp_path / "other.py").write_text("")
    assert parameters("m", "f", tmp_path) == ("a", "b")
    assert module_files(tmp_path, ["m"]) == (tmp_path / "m.py",)


def test_only_what_is_imported_goes_to_the_nodes(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("import os\nfrom helpers import clean\n\ndef f(a): import late\n")
    (tmp_path / "helpers.py").write_text("import m\n")
    for name in ("late", "unused", "make_orders"):
        (tmp_path / f"{name}.py").write_text("")
    assert [file.name for file in module_files(tmp_path, ["m"])] == ["helpers.py", "late.py", "m.py"]


def test_in_an_archive(tmp_path: Path) -> None:
    archive = tmp_path / "lib.zip"
    with ZipFile(archive, "w") as opened:
        opened.writestr("pack/m.py", "def f(a): ...\n")
    assert parameters("pack.m", "f", archive) == ("a",)
    assert module_files(archive, ["pack.m"]) == (archive,)


def test_installed() -> None:
    assert parameters("kproxy.spark.pipeline.python_steps", "parameters", None) == ("module", "function", "path")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def g(): ...\n", "has no function f; it has: g"),
        ("def f(*a): ...\n", "must name its parameters"),
        ("def f(:\n", r"m\.py:1: "),
    ],
)
def test_what_is_wrong_with_a_function(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "m.py").write_text(source)
    with pytest.raises(StepError, match=message):
        parameters("m", "f", tmp_path)


def test_a_module_that_is_nowhere(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"neither in .* nor installed"):
        parameters("nowhere_to_be_found", "f", tmp_path)
    with pytest.raises(StepError, match="not installed: give 'path'"):
        parameters("nowhere.to_be_found", "f", None)
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(StepError, match="must be a directory or a zip archive"):
        parameters("m", "f", tmp_path / "text")
