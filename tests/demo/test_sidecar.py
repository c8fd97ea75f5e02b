"""kproxy as the demo's child process."""

import urllib.request

import pytest

from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.demo.demo_broker import running_fake
from kproxy.demo.failure import DemoFailed
from kproxy.demo.sidecar import open_sidecar
from kproxy.testing.raw_connection import RawConnection


def test_it_is_ready_when_the_block_begins_and_gone_when_it_ends() -> None:
    with running_fake() as bootstrap:
        with open_sidecar(bootstrap) as sidecar:
            host, _, port = sidecar.address.rpartition(":")
            with RawConnection(host, int(port), timeout=60) as connection:
                answer = connection.call(MetadataRequest(topics=None), 1, MetadataResponse)
            assert len(answer.brokers) == 1
            assert f"{answer.brokers[0].host}:{answer.brokers[0].port}" != bootstrap
            with urllib.request.urlopen(f"http://{sidecar.http}/metrics", timeout=60) as page:
                assert page.status == 200
        with pytest.raises(ConnectionRefusedError):
            RawConnection(host, int(port), timeout=60)


def test_a_proxy_that_ends_at_once_is_a_failure_with_what_it_printed() -> None:
    with pytest.raises(DemoFailed, match=r"kproxy ended with status \d+: .*nowhere"), open_sidecar("nowhere"):
        pass
