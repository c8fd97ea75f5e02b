"""Units of options, and the kinds of values that several groups of options have."""

from typing import Final

from kproxy.config.values import whole_number

MIB: Final = 1 << 20
INT32_MAX: Final = (1 << 31) - 1
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
BYTES: Final = whole_number(1024, INT32_MAX, "bytes")
MEMORY: Final = whole_number(65_536, 1 << 40, "bytes")
MS: Final = whole_number(1, DAY_MS, "ms")
