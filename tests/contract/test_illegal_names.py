"""What a broker answers to a request for a topic which there cannot be."""

import pytest

from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproxy.codec.messages import ErrorCode, response_class
from kproxy.testing.cluster_client import ClusterClient
from tests.contract.coordinators import STARTING
from tests.contract.illegal_names import ASKED, NAMES
from tests.support.patience import repeat_while


@pytest.mark.parametrize("name", NAMES, ids=["250", "32000", "slash", "newline"])
@pytest.mark.parametrize("api", ASKED)
def test_a_topic_that_there_cannot_be_gets_its_error(client: ClusterClient, api: str, name: str) -> None:
    asked = ASKED[api]
    request = asked.request(name)

    def answer() -> int:
        client.any_broker().call(FindCoordinatorRequest(key="illegal-names"), 2, FindCoordinatorResponse)
        return asked.found(client.any_broker().call(request, asked.version, response_class(request.API_KEY)))

    assert ErrorCode(repeat_while(STARTING.__contains__, answer)) is asked.error
