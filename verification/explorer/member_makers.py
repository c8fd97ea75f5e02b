"""The maker of the members of a world: one for all of them."""

from kproxy.txn.procedures.members import MakersByRule, MemberMaker


def makers_of(maker: MemberMaker) -> MakersByRule:
    """Return a rule by which all members are of one maker."""
    return MakersByRule(maker, maker, lambda _: True, _serve)


async def _serve() -> bool:
    return True
