"""Does what the schedule says, and undoes it."""

import time
from collections.abc import Sequence

import trio

from kproxy.codec.messages import ApiKey
from kproxy.testing.relay import Drop, Ending, FaultRelay, Faults
from verification.chaos.kproxy_process import KproxyProcess
from verification.chaos.relayed_kafka import RelayedKafka
from verification.chaos.schedule import Step

_LONGEST_DELAY_S = 2.0
_DELAYED = (
    ApiKey.PRODUCE,
    ApiKey.METADATA,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)


class Nemesis:
    """The faults that are active.

    :param client_relays: for each kproxy its relays, which share their ``faults``.
    :param upstream_relays: for each network those in front of the brokers. If there are several, each kproxy has one.
    """

    def __init__(
        self,
        kafka: RelayedKafka,
        kproxies: Sequence[KproxyProcess],
        client_relays: Sequence[Sequence[FaultRelay]],
        upstream_relays: Sequence[Sequence[FaultRelay]],
    ) -> None:
        self._kafka = kafka
        self._kproxies = kproxies
        self._relays = {"client": client_relays, "upstream": list(zip(*upstream_relays, strict=True))}
        self._networks = upstream_relays
        self.current: list[Step] = []
        """What is broken now."""
        self.done: list[str] = []
        """What was done and when, as lines of text."""
        self.began = time.monotonic()
        self._one_broker = trio.Lock()
        """On a slow machine a broker comes back later than the schedule has it: the next one waits for it."""

    async def run(self, schedule: Sequence[Step]) -> None:
        """Go through the schedule; when it ends, everything is healed and every process runs."""
        self.began = time.monotonic()
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for step in schedule:
                await trio.sleep_until(began + step.at)
                nursery.start_soon(self._run, step)

    async def _run(self, step: Step) -> None:
        self.current.append(step)
        self._say(f"{step}")
        try:
            if step.family == "broker":
                async with self._one_broker:
                    await self._harm_broker(step)
            elif step.family == "leaders":
                await trio.to_thread.run_sync(self._kafka.move_leaders)
            elif step.family == "kproxy":
                await self._harm_kproxy(step)
            else:
                await self._harm_network(step)
        finally:
            self.current.remove(step)
            self._say(f"healed: {step.fault} {step.family} {step.target}")

    def _say(self, line: str) -> None:
        self.done.append(f"{time.monotonic() - self.began:8.2f} s [{time.monotonic_ns()}] {line}")

    async def _harm_broker(self, step: Step) -> None:
        kafka, index = self._kafka, step.target
        if step.fault == "pause":
            kafka.pause(index)
            try:
                await trio.sleep(step.seconds)
            finally:
                kafka.resume(index)
            return
        kafka.kill(index)
        await trio.sleep(step.seconds)
        kafka.respawn(index)
        await trio.to_thread.run_sync(kafka.wait_served, index)

    async def _harm_kproxy(self, step: Step) -> None:
        kproxy = self._kproxies[step.target]
        if step.fault == "pause":
            kproxy.pause()
            try:
                await trio.sleep(step.seconds)
            finally:
                kproxy.resume()
            return
        if step.fault == "cut off":
            await self._cut_off(self._networks[step.target], step)
            return
        kproxy.kill()
        await trio.sleep(step.seconds)
        await kproxy.start()

    async def _cut_off(self, relays: Sequence[FaultRelay], step: Step) -> None:
        """Nothing goes to or from the brokers for a time; then what was in flight arrives, or connections are lost."""
        for relay in relays:
            relay.pause()
        try:
            await trio.sleep(step.seconds)
        finally:
            for relay in relays:
                if step.chance < 0.5:
                    relay.cut_all(Ending.RST)
                relay.resume()

    async def _harm_network(self, step: Step) -> None:
        relays = self._relays[step.family][step.target]
        faults = relays[0].faults
        ending = Ending.RST if step.chance < 0.5 else Ending.FIN
        if step.fault == "cut":
            for relay in relays:
                relay.cut_all(ending)
        elif step.fault == "drop answers":
            faults.drop_answers = Drop(share=step.chance, ending=ending)
            await trio.sleep(step.seconds)
            faults.drop_answers = None
        elif step.fault == "delay":
            await self._delay(faults, step)
        else:
            await self._leave_half_open(relays, faults, step)

    async def _delay(self, faults: Faults, step: Step) -> None:
        delays = faults.answer_delays if step.chance < 0.5 else faults.request_delays
        for api_key in _DELAYED:
            delays[api_key] = step.chance * _LONGEST_DELAY_S
        await trio.sleep(step.seconds)
        delays.clear()

    async def _leave_half_open(self, relays: Sequence[FaultRelay], faults: Faults, step: Step) -> None:
        """Let both directions, or the answers alone, vanish; what went through the hole is useless, so cut it then."""
        faults.swallow_answers, faults.swallow_requests = True, step.chance < 0.6
        await trio.sleep(step.seconds)
        faults.swallow_answers = faults.swallow_requests = False
        for relay in relays:
            relay.cut_all(Ending.RST)
