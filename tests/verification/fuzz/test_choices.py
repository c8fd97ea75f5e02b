from verification.fuzz.choices import Choices, piece


def test_an_input_is_taken_apart_and_has_zeros_after_its_end() -> None:
    said = Choices(b"\x07\xff\xfe" + piece(b"abc") + b"rest")
    assert (said.number(), said.number(2, signed=True), said.piece(), said.rest()) == (7, -2, b"abc", b"rest")
    assert (said.number(4), said.piece(), said.rest()) == (0, b"", b"")
    assert Choices(b"\x01").number(2) == 256


def test_pieces_until_the_end() -> None:
    assert list(Choices(b"\1" + piece(b"a") + b"\2" + piece(b"") + b"\3\0\5ab").pieces()) == [
        (1, b"a"),
        (2, b""),
        (3, b"ab"),
    ]
