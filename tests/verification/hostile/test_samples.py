from random import Random
from typing import Any

import pytest

from kproxy.budget import unbounded
from verification.hostile.mutations import requests
from verification.hostile.samples import Samples


def differences(one: Any, other: Any) -> int:
    """In how many fields two messages differ."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return sum(differences(*pair) for pair in zip(one, other, strict=True))
    if hasattr(one, "unknown_tags") and type(one) is type(other):
        names = [name for name in type(one).__slots__ if name != "unknown_tags"]
        return sum(differences(getattr(one, name), getattr(other, name)) for name in names)
    return int(one != other)


@pytest.mark.parametrize("seed", range(3))
def test_well_formed_requests_are_read_as_they_were_written(seed: int) -> None:
    samples = Samples(Random(seed))
    for name, _, version in requests():
        message = samples.well_formed(name, version)
        assert type(message).decode(message.encode(version), version, unbounded()) == message


def test_one_field_is_wrong_and_no_other() -> None:
    found = []
    for seed, (name, _, version) in enumerate(requests()):
        sound = Samples(Random(seed)).well_formed(name, version)
        found.append(differences(sound, Samples(Random(seed)).one_field_wrong(name, version)))
    assert set(found) <= {0, 1}
    assert found.count(1) > len(found) // 2
