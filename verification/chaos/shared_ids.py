"""The transactional ids of producers that share them, and of a producer of the second protocol that has its own."""

from collections.abc import Mapping, Sequence
from typing import Final

from kproxy.codec.topic_partition import TopicPartition
from verification.chaos.link import Address
from verification.chaos.raw_transactions import FIRST, SECOND
from verification.chaos.recorder import Recorder
from verification.chaos.twins import Shared, Twin

INPUTS: Final = "chaos.inputs"
"""A topic with one partition that stays empty: the groups' offsets are of it."""
_SOURCE: Final = (INPUTS, 0)


class SharedIds:
    """All producers that are written request by request.

    In each home there are a pair of the first protocol, a pair of the second one, and one producer of the second that
    nobody fences. The two of a pair connect to different kproxies, if there are several.

    :param places: where they write, by home, which is how their transactional ids begin.
    """

    def __init__(
        self,
        places: Mapping[str, tuple[TopicPartition, ...]],
        kproxies: Sequence[Address],
        recorder: Recorder,
        seed: int,
    ) -> None:
        self.twins: list[Twin] = []
        self._readers: list[Twin] = []
        """One of each id, which reads its group's offset at the end."""
        first, last = kproxies[0], kproxies[-1]
        for home, own in places.items():
            for name, protocol, addresses in (
                ("pair.first", FIRST, {"a": first, "b": last}),
                ("pair.second", SECOND, {"a": first, "b": last}),
                ("alone.second", SECOND, {"a": last}),
            ):
                shared = Shared(f"{home}.{name}", own, protocol, _SOURCE)
                made = [
                    Twin(f"{shared.transactional_id}.{which}", shared, address, recorder, seed)
                    for which, address in addresses.items()
                ]
                self.twins += made
                self._readers.append(made[-1])

    async def read_positions(self) -> list[str]:
        """Record the final offset of each group; return why those that could not be read were not."""
        failed = []
        for reader in self._readers:
            try:
                await reader.read_position()
            except TimeoutError as error:
                failed.append(str(error))
        return failed
