from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from verification.fuzz import __main__ as command
from verification.fuzz.corpus import read

LINE = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"


def fuzzer(said: str, found: bytes | None = None) -> Callable[..., None]:
    """What takes the place of atheris: it says something, and may find something."""

    def run(command: Sequence[str], *, stdout: Any, **options: Any) -> None:
        stdout.write(said)
        [prefix] = [word.partition("=")[2] for word in command if word.startswith("-artifact_prefix=")]
        if found is not None:
            Path(f"{prefix}crash-some").write_bytes(found)

    return run


def with_fuzzer(monkeypatch: pytest.MonkeyPatch, run: Callable[..., None]) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: name)
    monkeypatch.setattr(command.subprocess, "run", run)


SAID = "#9 cov: 12 ft: 34 corp: 5\nstat::number_of_executed_units: 678\n"


def test_a_run_in_which_nothing_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_fuzzer(monkeypatch, fuzzer(SAID))
    assert command.main(["balanced", "--seconds", "1", "--folder", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("balanced: 678 executions, 12 edges, ")
    assert "FOUND" not in said


def test_what_is_found_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_fuzzer(monkeypatch, fuzzer(SAID, b"some"))
    assert command.main(["balanced", "--seconds", "1", "--folder", str(tmp_path)]) == 1
    assert f"balanced: FOUND {tmp_path / 'balanced' / 'found' / 'crash-some'}\n" in capsys.readouterr().out


def test_an_input_that_costs_too_much_is_reported_and_put_aside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = command.TARGETS["balanced"]
    bound = target.bound.__class__(0, 0, 0, 0)
    monkeypatch.setitem(command.TARGETS, "balanced", target.__class__("balanced", target.check, list, bound, ()))
    monkeypatch.setattr(command, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(command, "kept", lambda name: read(tmp_path / "kept" / f"{name}.zip"))
    (tmp_path / "balanced" / "inputs").mkdir(parents=True)
    (tmp_path / "balanced" / "inputs" / "one").write_bytes(LINE)
    with_fuzzer(monkeypatch, fuzzer(SAID))
    assert command.main(["balanced", "--seconds", "1", "--folder", str(tmp_path), "--keep"]) == 1
    assert "instructions for 36 bytes; at most 0 are allowed" in capsys.readouterr().out
    assert read(tmp_path / "kept" / "balanced.zip").found == [LINE]


def test_inputs_that_reach_most_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "KEPT", tmp_path / "kept")
    with_fuzzer(monkeypatch, fuzzer(SAID))
    assert command.main(["balanced", "--seconds", "1", "--folder", str(tmp_path), "--keep"]) == 0
    assert read(tmp_path / "kept" / "balanced.zip").inputs


def test_a_run_in_which_nothing_is_executed_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_fuzzer(monkeypatch, fuzzer("ImportError"))
    with pytest.raises(RuntimeError, match="nothing was executed"):
        command.main(["balanced", "--seconds", "1", "--folder", str(tmp_path)])


def test_one_input_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one").write_bytes(LINE)
    assert command.main(["balanced", "--input", str(tmp_path / "one")]) == 0
    assert capsys.readouterr().out.startswith("balanced: Cost(steps=")


@pytest.mark.parametrize(
    ("arguments", "why"), [(["none"], "no target 'none'"), ([], "pip install '.[fuzz]', in a clone of kproxy")]
)
def test_what_cannot_be_run(
    arguments: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert why in capsys.readouterr().err


def test_words_are_written_as_a_dictionary_has_them() -> None:
    assert command._quoted(b'a"\\\xff') == '"\\x61\\x22\\x5c\\xff"\n'
