"""The owner of the repository is named in mkdocs.yml, and written from there into the other files."""

from pathlib import Path

import pytest

from tools.generate_addresses import PLACES, ROOT, SOURCE, addressed, main


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in (SOURCE, *PLACES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    return tmp_path


def test_the_files_have_the_address() -> None:
    assert main(["--check"]) == 0


def test_another_owner_is_written_everywhere(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (copy / SOURCE).read_text(encoding="utf-8")
    (copy / SOURCE).write_text(text.replace("github.com/kproxy/kproxy", "github.com/acme/kafka-proxy"), "utf-8")
    assert main(["--check"], copy) == 1
    assert capsys.readouterr().err.count("is out of date: run make generate") == len(PLACES)
    assert main([], copy) == 0
    assert main(["--check"], copy) == 0
    written = "".join((copy / place).read_text(encoding="utf-8") for place in PLACES)
    assert "https://github.com/acme/kafka-proxy/issues" in written
    assert "home: https://acme.github.io/kafka-proxy\n" in written
    assert "kproxy/kproxy" not in written.replace("helm/kproxy", "")


def test_a_source_without_an_address_is_named(copy: Path) -> None:
    (copy / SOURCE).write_text("repo_url: https://example.com\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"mkdocs\.yml: repo_url must be"):
        addressed(copy)
