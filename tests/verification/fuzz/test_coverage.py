from verification.fuzz.coverage import covered, files_of, smallest, steps_of
from verification.fuzz.target import Bound, Target

MODULE = "kproxy.codec.varint"


def check(data: bytes) -> None:
    from kproxy.codec.varint import read_varint

    read_varint(data, 0)


TARGET = Target("varint", check, list, Bound(0, 0, 0, 0), (MODULE,))
ONE, TWO, THREE, CUT = b"\x01", b"\x80\x01", b"\x80\x80\x01", b"\x80"


def test_the_smallest_inputs_that_reach_each_step() -> None:
    longer = b"\x80" * 3 + b"\x01"
    inputs = [longer, THREE, TWO, b"\x02", ONE, CUT, THREE + b"more", b"\x81\x01", longer + b"\x01"]
    assert smallest(TARGET, inputs) == [ONE, CUT, TWO, THREE, longer]


def test_a_check_that_fails_has_taken_its_steps_all_the_same() -> None:
    assert steps_of(TARGET, CUT, files_of(TARGET)).keys() - steps_of(TARGET, TWO, files_of(TARGET)).keys()


def test_lines_within_functions_are_counted() -> None:
    few, more = covered(TARGET, [ONE]), covered(TARGET, [ONE, TWO, THREE])
    assert 0 < few.reached < more.reached < more.lines == few.lines


def test_a_package_has_the_files_of_its_modules() -> None:
    package = Target("all", check, list, Bound(0, 0, 0, 0), ("kproxy.codec._generated",))
    assert len(files_of(package)) > 50
    assert len(files_of(TARGET)) == 1
