"""kproxy answers a request for a topic which there cannot be as brokers do (``tests/contract``)."""

import pytest

from kproxy.codec.messages import ErrorCode
from tests.contract.illegal_names import ASKED, NAMES
from tests.net.harness import proxied


@pytest.mark.parametrize("options", [{}, {"transactions_home": "kproxy"}], ids=["as it comes", "transactions"])
async def test_a_topic_that_there_cannot_be_gets_its_error(options: dict[str, str]) -> None:
    async with proxied(**options) as proxy, await proxy.client() as client:
        for api, asked in ASKED.items():
            for name in NAMES:
                answer = await client.call(asked.request(name), asked.version)
                assert ErrorCode(asked.found(answer)) is asked.error, (api, name[:10])
