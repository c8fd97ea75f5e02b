"""Values of the wire types, in hexadecimal as they are written, with what reads and what writes them."""

from kproxy.codec import primitive_writers as writers
from kproxy.codec import primitives as readers

VARINTS = {0: "00", 1: "01", 127: "7f", 128: "8001", 300: "ac02", 2**31 - 1: "ffffffff07", 2**32 - 1: "ffffffff0f"}

STRINGS = [
    (readers.read_string, writers.write_string, "é", "0002c3a9"),
    (readers.read_nullable_string, writers.write_nullable_string, None, "ffff"),
    (readers.read_nullable_string, writers.write_nullable_string, "", "0000"),
    (readers.read_compact_string, writers.write_compact_string, "é", "03c3a9"),
    (readers.read_compact_nullable_string, writers.write_compact_nullable_string, None, "00"),
    (readers.read_compact_nullable_string, writers.write_compact_nullable_string, "", "01"),
    (readers.read_bytes, writers.write_bytes, b"ab", "000000026162"),
    (readers.read_nullable_bytes, writers.write_nullable_bytes, None, "ffffffff"),
    (readers.read_compact_bytes, writers.write_compact_bytes, b"ab", "036162"),
    (readers.read_compact_nullable_bytes, writers.write_compact_nullable_bytes, None, "00"),
    (readers.read_records, writers.write_bytes, b"ab", "000000026162"),
    (readers.read_nullable_records, writers.write_nullable_bytes, None, "ffffffff"),
    (readers.read_compact_records, writers.write_compact_bytes, b"ab", "036162"),
    (readers.read_compact_nullable_records, writers.write_compact_nullable_bytes, None, "00"),
]

NULLS = [
    (readers.read_string, writers.write_string, "ffff"),
    (readers.read_compact_string, writers.write_compact_string, "00"),
    (readers.read_bytes, writers.write_bytes, "ffffffff"),
    (readers.read_compact_bytes, writers.write_compact_bytes, "00"),
    (readers.read_records, writers.write_bytes, "80000000"),
    (readers.read_compact_records, writers.write_compact_bytes, "00"),
]
