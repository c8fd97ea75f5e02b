from pathlib import Path

from kproxy.net.file_stamps import file_stamps


def test_a_file_that_is_replaced_or_gone_has_another_stamp(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    first = file_stamps([one, two])
    assert first == file_stamps([one, two])
    two.write_text("1")
    both = file_stamps([one, two])
    two.replace(one)
    assert len({first, both, file_stamps([one, two]), file_stamps([])}) == 4
