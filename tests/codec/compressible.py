"""What the tests of the codecs compress."""

MIB = 1 << 20
TEXT = b"".join(b"line %d of a text that compresses well\n" % number for number in range(6000))
XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
"""The header of a xerial stream: version 1, readable since version 1."""
