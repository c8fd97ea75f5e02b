from pathlib import Path

import trio

from verification.hostile.stretches import LongestStretch, Watch


async def _passes() -> None:
    for _ in range(3):
        await trio.lowlevel.checkpoint()


def test_the_longest_stretch_is_kept_until_it_is_set_back(tmp_path: Path) -> None:
    times = iter([0.0, 0.25, 1.0, 1.5, 2.0, 2.125, 3.0, 3.125])
    ours, theirs = (LongestStretch(tmp_path / "longest") for _ in range(2))
    watch = Watch(ours, lambda: next(times))
    assert theirs.seconds == 0.0
    watch.before_io_wait(0)  # the start of the process
    for _ in range(3):
        watch.after_io_wait(0)
        watch.before_io_wait(0)
    assert theirs.seconds == 0.5
    theirs.seconds = 0.0
    watch.after_io_wait(0)
    watch.before_io_wait(0)
    assert ours.seconds == 0.125


def test_a_loop_that_works_without_a_break_is_noticed(tmp_path: Path) -> None:
    longest = LongestStretch(tmp_path / "longest")
    trio.run(_passes, instruments=[Watch(longest)])
    assert longest.seconds > 0
