"""Owners that are packed whenever they rest and are asked for something: nothing may show it."""

from collections import Counter

import pytest

from kproxy.txn.procedures import broker_owners
from kproxy.txn.procedures.broker_owners import BrokerOwners


def pack_always(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """Has each look at an owner come after a rest; counts whether it could be packed."""
    known, counted = BrokerOwners.known, Counter[bool]()

    def packed_before(owners: BrokerOwners, transactional_id: str) -> object:
        owner = owners._owners.get(transactional_id)
        if owner is not None and owner.policy is broker_owners.CLIENT and owner.is_at_rest:
            owner.disconnect()
            counted[owners._pack(transactional_id, owner)] += 1
        return known(owners, transactional_id)

    monkeypatch.setattr(BrokerOwners, "known", packed_before)
    return counted


@pytest.fixture(params=["kept", "packed"])
def _kept_or_packed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "packed":
        pack_always(monkeypatch)
