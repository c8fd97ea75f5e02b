"""What a broker answers to a request for a topic which there cannot be."""

import time

import pytest

from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproxy.codec.messages import ErrorCode, response_class
from kproxy.testing.cluster_client import ClusterClient
from tests.contract.illegal_names import ASKED, NAMES

#: What a coordinator answers that is not ready yet.
_NOT_YET = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


@pytest.mark.parametrize("name", NAMES, ids=["250", "32000", "slash", "newline"])
@pytest.mark.parametrize("api", ASKED)
def test_a_topic_that_there_cannot_be_gets_its_error(client: ClusterClient, api: str, name: str) -> None:
    asked = ASKED[api]
    request = asked.request(name)
    deadline = time.monotonic() + 30
    while True:
        client.any_broker().call(FindCoordinatorRequest(key="illegal-names"), 2, FindCoordinatorResponse)
        answer = client.any_broker().call(request, asked.version, response_class(request.API_KEY))
        if asked.found(answer) not in _NOT_YET or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    assert ErrorCode(asked.found(answer)) is asked.error
