import pytest

from kproxy.codec.messages import ApiKey
from kproxy.doctor.checks import CHECKS, look, worst
from kproxy.doctor.examined import Examined
from kproxy.doctor.findings import Level
from kproxy.testing.fake_broker import Close
from tests.doctor.patients import examined, fake, make_config
from tests.doctor.test_topic_checks import make_own


async def test_a_cluster_that_is_well() -> None:
    async with fake() as cluster:
        make_own(cluster)
        cluster.cluster.create_topic("orders", 3, 3)
        found = await examined(cluster)
    found.open_files = (-1, -1)
    told = look(found)
    assert {row.check for row in told} == {check.name for check in CHECKS}
    assert worst(told) is Level.OK, told


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.METADATA,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.API_VERSIONS,
    ],
)
async def test_a_question_that_breaks_the_connection_leaves_the_others(key: ApiKey) -> None:
    async with fake() as cluster:
        make_own(cluster)
        cluster.cluster.control(key, lambda call: Close())
        found = await examined(cluster)
    told = look(found)
    assert {row.check for row in told} == {check.name for check in CHECKS}
    assert bool(found.topics) == (key not in (ApiKey.METADATA, ApiKey.API_VERSIONS))
    assert (found.producer_id_error == 0) == (key not in (ApiKey.INIT_PRODUCER_ID, ApiKey.API_VERSIONS))


def test_every_check_says_something_when_nothing_was_found() -> None:
    told = look(Examined(make_config()))
    assert {row.check for row in told} == {check.name for check in CHECKS}
