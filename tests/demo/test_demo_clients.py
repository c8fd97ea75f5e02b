from hypothesis import given
from hypothesis import strategies as st

from kproxy.demo.demo_clients import VALUE_BYTES, record_number, record_value


@given(st.integers(0, 10**9))
def test_a_value_tells_its_number_and_has_its_size(number: int) -> None:
    assert record_number(record_value(number)) == number
    assert len(record_value(number)) == VALUE_BYTES
