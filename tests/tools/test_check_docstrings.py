"""The first word of docstrings: a noun phrase or a verb passes; a word that names no thing is reported by line."""

from pathlib import Path

import pytest

from tools.check_docstrings import FOLDERS, NOT_FIRST, ROOT, check, files, main


def lines(source: str) -> list[int]:
    return [finding.line for finding in check("plain.py", source)]


@pytest.mark.parametrize(
    "text",
    [
        "What is asked.",
        "what is asked.",
        "Whose id it is.",
        "Where it writes.",
        "Who asks.",
        "How many wait.",
        "As ``append``.",
        "Of one client.",
        "It has ended.",
        "From now on nothing is held.",
        "\n    What is asked.\n    ",
        "What's asked.",
        "As: nobody.",
    ],
)
def test_a_docstring_that_names_no_thing_is_found(text: str) -> None:
    assert lines(f'"""{text}"""\n') == [1]


@pytest.mark.parametrize(
    "text",
    [
        "Answers of a broker.",
        "The answers of a broker.",
        "An answer, as a broker gives it.",
        "Return what is asked.",
        "Returns what is asked.",
        "Whether it is asked.",
        "``what`` is asked.",
        "Assigns an id.",
        "Offsets: what a group has read.",
        "Its own id.",
        "3 s, as a rule.",
        "",
    ],
)
def test_a_noun_phrase_a_verb_and_whether_are_right(text: str) -> None:
    assert lines(f'"""{text}"""\n') == []


_SOURCE = '''
"""What a module has."""

SIZE = 1
"""In bytes."""

class Row:
    """Of one client.

    What follows is not the first word.
    """

    at: float
    """When it came."""

    async def ask(self) -> str:
        """Why it asks."""

        def inner() -> str:
            """Until when."""
            return "What is asked."

        text = "What is asked."
        return text  # What is asked.
'''


def test_docstrings_of_modules_classes_functions_and_attributes_are_checked_and_no_other_strings() -> None:
    assert lines(_SOURCE) == [2, 5, 8, 14, 17, 20]


def test_a_finding_names_the_place_and_what_to_do() -> None:
    (found,) = check("plain.py", '"""What is asked.\n\nMore.\n"""\n')
    assert str(found) == "plain.py:1: 'What is asked.': begin with a noun phrase or a verb"


def test_the_files_of_the_folders_are_checked() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in files()}
    assert {"kproxy/txn/views.py", "kproxy/net/txn/broker/broker_requests.py", "kproxy/net/single_batch.py"} <= names
    assert all(name.endswith(".py") and name.startswith(FOLDERS) for name in names)


def test_a_folder_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        files(["kproxy/not_there"])


def test_the_exit_status_says_whether_something_was_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tools.check_docstrings.ROOT", tmp_path)
    (tmp_path / "wrong.py").write_text('"""What is asked."""\n', encoding="utf-8")
    (tmp_path / "right.py").write_text('"""Answers of a broker."""\n', encoding="utf-8")
    assert main([str(tmp_path / "right.py")]) == 0
    assert capsys.readouterr().out == ""
    assert main([str(tmp_path / "right.py"), str(tmp_path / "wrong.py")]) == 1
    assert capsys.readouterr().out == "wrong.py:1: 'What is asked.': begin with a noun phrase or a verb\n"


def test_whether_is_no_word_that_is_refused() -> None:
    assert "whether" not in NOT_FIRST
