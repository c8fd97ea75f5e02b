"""What only the process itself can count."""

from functools import partial
from pathlib import Path

import trio

from verification.soak.gauges import Watch, heap, read


def test_the_counts_of_a_loop_are_written_once_a_second(tmp_path: Path) -> None:
    path, now = tmp_path / "gauges.json", [0.0]
    watch = Watch(path, lambda: now[0])

    async def main() -> None:
        now[0] = 1.0
        await trio.sleep(0.001)
        alone = read(path).tasks
        now[0] = 2.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.sleep, 0.01))
            nursery.start_soon(trio.sleep, 0.01)
        assert read(path).tasks == alone + 2
        now[0] = 2.9
        await trio.sleep(0.001)
        assert read(path).tasks == alone + 2

    trio.run(main, instruments=[watch])
    assert read(path).blocks > 1000


def test_the_heap_is_counted_where_the_c_library_says_it() -> None:
    used, free = heap()
    assert (used == free == 0) or used > 1_000_000
