"""The hash by which Java's producer spreads keys over partitions (``Utils.murmur2``), of many keys at once."""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_Hashes: TypeAlias = npt.NDArray[np.uint32]

_SEED: Final = np.uint32(0x9747B28C)
_FACTOR: Final = np.uint32(0x5BD1E995)
_SHIFT: Final = np.uint32(24)
_LAST_SHIFTS: Final = (np.uint32(13), np.uint32(15))
_WORD: Final = 4
_POSITIVE: Final = np.uint32(0x7FFFFFFF)


def key_hashes(keys: pa.Array) -> npt.NDArray[np.int64]:
    """A number from 0 to 2^31 - 1 for each key, of Arrow's type binary; for a null that of an empty key."""
    if not len(keys):
        return np.zeros(0, np.int64)
    _, offsets, data = keys.buffers()
    places = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    block = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    starts, sizes = places[:-1], np.diff(places)
    if keys.null_count:
        sizes = np.where(keys.is_valid().to_numpy(zero_copy_only=False), sizes, 0)
    return (_murmur2(block, starts, sizes) & _POSITIVE).astype(np.int64)


def _murmur2(block: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> _Hashes:
    found = _SEED ^ sizes.astype(np.uint32)
    words = sizes // _WORD
    longer, at = np.flatnonzero(words), 0
    while len(longer):  # one word of each key that has so many
        word = _word(block, starts[longer] + at * _WORD) * _FACTOR
        word ^= word >> _SHIFT
        found[longer] = found[longer] * _FACTOR ^ word * _FACTOR
        at += 1
        longer = longer[words[longer] > at]
    rest = sizes % _WORD
    for index in (2, 1, 0):
        some = np.flatnonzero(rest > index)
        byte = block[starts[some] + words[some] * _WORD + index].astype(np.uint32)
        found[some] ^= byte << np.uint32(8 * index)
    some = np.flatnonzero(rest)
    found[some] *= _FACTOR
    found ^= found >> _LAST_SHIFTS[0]
    found *= _FACTOR
    found ^= found >> _LAST_SHIFTS[1]
    return found


def _word(block: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> _Hashes:
    """The four bytes at each of the places, the lowest first."""
    found = block[at].astype(np.uint32)
    for index in range(1, _WORD):
        found |= block[at + index].astype(np.uint32) << np.uint32(8 * index)
    return found
