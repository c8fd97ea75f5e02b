"""kproxy as the demo's child process."""

import socket
import urllib.request

import pytest

from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.demo.demo_broker import running_fake
from kproxy.demo.failure import DemoFailed
from kproxy.demo.sidecar import Sidecar, open_kproxy, open_sidecar
from kproxy.testing.ports import free_ports
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


def test_a_proxy_that_ends_at_once_is_a_failure_with_its_errors_alone() -> None:
    with pytest.raises(DemoFailed, match=r"^kproxy did not start: [^{]*nowhere[^{]*$"), open_sidecar("nowhere"):
        pass


def test_a_port_in_use_is_named_with_what_to_do() -> None:
    with running_fake() as bootstrap, socket.create_server(("127.0.0.1", 0)) as taken:
        used = f"127.0.0.1:{taken.getsockname()[1]}"
        free = f"127.0.0.1:{free_ports(1)[0]}"
        brokers = ("--bootstrap-servers", bootstrap)
        not_listening = rf"^kproxy did not start: cannot listen on listen = '{used}': [^{{]*--listen"
        with pytest.raises(DemoFailed, match=not_listening), open_kproxy(Sidecar(used, free), *brokers):
            pass
        not_free = rf"^another process listens at {used}: choose another address for --http"
        with pytest.raises(DemoFailed, match=not_free), open_kproxy(Sidecar(free, used), *brokers):
            pass
