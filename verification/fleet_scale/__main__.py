"""``python -m verification.fleet_scale``: a fleet, on a virtual clock or of processes, and what it asks of 3 brokers.

The exit status is the number of bars that are missed.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

import trio

from verification.fleet_scale import processes
from verification.fleet_scale.fleet import Findings, Fleet
from verification.fleet_scale.meter import Load
from verification.simulation.plan import BROKERS

#: Requests a second of an idle instance, at all brokers together.
IDLE_REQUESTS = 0.1


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a fleet and prints what was found."""
    parser = argparse.ArgumentParser(prog="python -m verification.fleet_scale", description=__doc__)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--idle-seconds", type=float, default=240.0, help="virtual (default: %(default)s)")
    parser.add_argument("--decisions", type=int, default=5)
    parser.add_argument("--clients", type=int, default=100, help="that write during the restart of all")
    parser.add_argument("--processes", type=int, help="so many real processes before real brokers, and nothing else")
    options = parser.parse_args(arguments)
    if options.processes:
        return _with_processes(options.processes, options.idle_seconds, options.clients)
    began = time.process_time()
    found = run(options.instances, options.idle_seconds, options.decisions, min(options.clients, options.instances))
    for line in report(found):
        sys.stdout.write(f"{line}\n")
    missed = list(missed_bars(found))
    sys.stdout.writelines(f"MISSED: {line}\n" for line in missed)
    sys.stdout.write(f"{time.process_time() - began:.0f} s of CPU\n")
    return len(missed)


def _with_processes(count: int, idle_s: float, clients: int) -> int:
    found = processes.run(count, idle_s, min(clients, count))
    sys.stdout.writelines(f"{line}\n" for line in processes.report(found))
    return len(found.faults)


def run(instances: int, idle_s: float, decisions: int, clients: int) -> Findings:
    """What a fleet of that size shows."""
    fleet = Fleet(instances)

    async def all_of_it() -> Findings:
        return await fleet.run(idle_s=idle_s, decisions=decisions, clients=clients)

    return trio.run(all_of_it, clock=fleet.clock.trio_clock)


def report(found: Findings) -> Iterator[str]:
    """Lines for a person."""
    yield f"{found.instances} instances, {BROKERS} brokers"
    yield from _load("all start at once", found.start, found.instances)
    yield from _load("idle", found.idle, found.instances)
    idle = found.idle
    yield (
        f"  of one instance: a request in {idle.lasted * found.instances / idle.total:.1f} s, "
        f"{(idle.bytes_in + idle.bytes_out) / idle.lasted / found.instances:.0f} bytes a second"
    )
    visible = sorted(found.visible)
    p50, p99 = (visible[int(len(visible) * part)] * 1000 for part in (0.5, 0.99))
    yield f"EndTxn to the view of every instance: p50 {p50:.0f} ms, p99 {p99:.0f} ms, last {visible[-1] * 1000:.0f} ms"
    yield from _load("decisions", found.decisions, found.instances)
    yield from _load("an instance dies in a transaction, and all others see it aborted", found.orphan, found.instances)
    yield from _load("rolling restart", found.restarts, found.instances)
    yield f"  {found.acknowledged} records acknowledged, {len(found.faults)} errors"


def _load(name: str, load: Load, instances: int) -> Iterator[str]:
    sent, received = load.bytes_in / 1e6, load.bytes_out / 1e6
    yield (
        f"{name}: {load.total} requests in {load.lasted:.1f} s ({load.total / instances:.1f} of each instance), "
        f"at most {load.peak} a second; {sent:.2f} MB to brokers, {received:.2f} MB from them"
    )
    yield "  " + ", ".join(f"{count} {kind}" for kind, count in load.requests.most_common(6))


def missed_bars(found: Findings) -> Iterator[str]:
    """What is worse than it may be."""
    idle = found.idle.total / found.idle.lasted / found.instances
    if idle > IDLE_REQUESTS:
        yield f"an idle instance sends {idle:.3f} requests a second, not {IDLE_REQUESTS}"
    claims = found.orphan.requests["Produce"]
    if claims > 6 + found.instances // 20:
        yield f"{claims} writes to abort one transaction: instances do it at the same time"
    yield from found.faults[:5]


if __name__ == "__main__":
    sys.exit(main())
