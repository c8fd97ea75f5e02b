"""A made page is written, or only compared."""

from pathlib import Path

import pytest

from tools.one_page import draw_or_check, markdown_table, with_part, write_or_check


def test_the_page_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert write_or_check(page, "what is sent → what is seen\n", []) == 0
    assert page.read_text(encoding="utf-8") == "what is sent → what is seen\n"


def test_the_check_finds_a_difference_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("old\n", encoding="utf-8")
    assert write_or_check(page, "new\n", ["--check"]) == 1
    assert "page.md is out of date" in capsys.readouterr().err
    assert page.read_text(encoding="utf-8") == "old\n"
    assert write_or_check(page, "old\n", ["--check"]) == 0


def test_the_check_misses_a_page_that_is_not_there(tmp_path: Path) -> None:
    assert write_or_check(tmp_path / "page.md", "new\n", ["--check"]) == 1
    assert not (tmp_path / "page.md").exists()


def test_only_what_is_between_the_lines_changes() -> None:
    page = "before\n<begin>\nold\n<end>\nbehind\n"
    assert with_part(page, "<begin>", "<end>", "new") == page.replace("old", "new")


@pytest.mark.parametrize("page", ["", "<begin>", "<end>", "<end> <begin>"])
def test_a_page_without_both_lines_has_no_place(page: str) -> None:
    with pytest.raises(ValueError, match="has no place for it: <begin> "):
        with_part(page, "<begin>", "<end>", "new")


def test_a_table_aligns_numbers_on_the_right() -> None:
    rows = [["a", "1"], ["", "2"]]
    assert markdown_table(["name", "count"], rows, ["count"]).splitlines() == [
        "| name | count |",
        "| --- | ---: |",
        "| a | 1 |",
        "| | 2 |",
    ]
    assert markdown_table(["a", "b", "c"], [["", "", ""]]).splitlines()[2] == "| | | |"


def test_what_can_not_be_drawn_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refuses(_: str) -> str:
        raise ValueError("not run yet")

    page = tmp_path / "page.md"
    page.write_text("old\n", encoding="utf-8")
    assert draw_or_check(page, refuses, []) == 1
    assert "not run yet" in capsys.readouterr().err
    assert draw_or_check(page, str.upper, []) == 0
    assert page.read_text(encoding="utf-8") == "OLD\n"
