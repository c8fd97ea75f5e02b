"""The partitioner's hash, against values of Java's ``Utils.murmur2``."""

from typing import Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.spark.key_hash import key_hashes

#: Of Kafka's own ``UtilsTest.testMurmur2``.
_JAVA: Final = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hashed"), _JAVA.items())
def test_a_key_is_hashed_as_in_java(key: bytes, hashed: int) -> None:
    assert key_hashes(pa.array([key], pa.binary())).tolist() == [hashed & 0x7FFFFFFF]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40))), st.integers(0, 3))
def test_many_keys_are_hashed_as_each_alone(keys: list[bytes | None], skipped: int) -> None:
    together = key_hashes(pa.array(keys, pa.binary()).slice(skipped)).tolist()
    assert together == [int(key_hashes(pa.array([key or b""], pa.binary()))[0]) for key in keys[skipped:]]
