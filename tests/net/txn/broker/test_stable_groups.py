"""Offsets of groups are read only where none of them is being decided."""

import pytest
import trio

from kproxy.codec._generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn.broker.stable_groups import StableGroups
from kproxy.proxy.offset_fetch_overlay import stable_requests
from kproxy.testing.fake_broker import Answer, Call
from tests.net.txn.broker.native_stage import stage
from tests.net.txn.group_client import fetch_request
from tests.net.txn.log_harness import PATIENCE

pytestmark = pytest.mark.idle_clock

DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED


async def test_groups_that_nothing_is_open_for_are_stable_at_once() -> None:
    async with stage() as cast:
        client = await cast.client()
        await client.offsets("g", 5)
        await client.end()
        with trio.fail_after(PATIENCE):
            await StableGroups(client.kproxy.cluster).wait([everything("g"), everything("unknown")])


def everything(group_id: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(group_id, None, require_stable=True)


@pytest.mark.parametrize("version", [None, 5, 7, 9, 10])
async def test_it_waits_for_the_markers(version: int | None) -> None:
    """Also for those of a first offset, where the client names its partitions; None: it asks for all that there is."""
    async with stage() as cast:
        client = await cast.client()
        if version is None:
            await client.offsets("g", 5)
            await client.end()
        await client.offsets("g", 6)
        cast.server.cluster.hold_markers()
        requests = [everything("g")]
        if version is not None:
            ids = {"t": cast.server.cluster.topics["t"].topic_id}
            asked = fetch_request(["g"], [("t", 1), ("t", 0)], version, stable=False, ids=ids)
            requests = stable_requests(asked, version)
        await client.end()
        asked_often = trio.Event()
        asks: list[float] = []

        def note(call: Call) -> None:
            asks.append(trio.current_time())
            if len(asks) == 3:
                asked_often.set()

        cast.server.cluster.control(ApiKey.OFFSET_FETCH, note)
        stable = trio.Event()

        async def wait() -> None:
            await StableGroups(client.kproxy.cluster).wait(requests)
            stable.set()

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await asked_often.wait()
                assert not stable.is_set()
                assert len(set(asks)) == len(asks), "it asks without a pause"
                cast.server.cluster.release_markers()
        assert cast.server.cluster.groups["g"].offsets["t", 0].offset == 6


@pytest.mark.parametrize(
    ("question", "refused"),
    [
        (everything("g"), OffsetFetchResponse(error_code=DENIED)),
        (
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)], require_stable=True),
            OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", error_code=DENIED)]),
        ),
    ],
    ids=["names", "ids"],
)
async def test_what_can_not_be_read_is_not_taken_for_stable(
    question: OffsetFetchRequest, refused: OffsetFetchResponse
) -> None:
    async with stage() as cast:
        kproxy = await cast.kproxy()
        cast.server.cluster.control(ApiKey.OFFSET_FETCH, lambda call: Answer(refused))
        with pytest.raises(OSError, match="group g"):
            await StableGroups(kproxy.cluster).wait([question])
