"""TLS on either side of kproxy, as the configuration has it."""

import ssl
from pathlib import Path
from typing import Any

import pytest
import trio

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest
from kproxy.codec._generated.metadata import MetadataResponse
from kproxy.codec.messages import ErrorCode
from kproxy.config import Address, Config, ExitCode, StartupError
from kproxy.net.network import ByteIO
from kproxy.net.socket_network import SocketListener, SocketNetwork
from kproxy.net.tls_context import TlsFiles, client_context
from kproxy.net.tls_network import open_network
from kproxy.proxy.permits import PermitRule
from kproxy.proxy.principals import parse_mapping_rules
from kproxy.proxy.stats import Stats
from tests.net.certificates import Authority
from tests.net.harness import FrameClient, eventually, metadata, produce, proxied, running, values_in


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def configured(**options: Any) -> Config:
    return Config(bootstrap_servers=(Address("127.0.0.1", 9092),), **options)


def listening(files: TlsFiles, **options: Any) -> dict[str, Any]:
    return {"ssl_certificate_location": files.certificate, "ssl_key_location": files.key, **options}


async def tls_client(port: int, files: TlsFiles, name: str = "localhost") -> FrameClient:
    stream = trio.SSLStream(
        await trio.open_tcp_stream("127.0.0.1", port),
        client_context(files, checks_name=True),
        server_hostname=name,
        https_compatible=True,
    )
    with trio.fail_after(120):
        await stream.do_handshake()
    return FrameClient(stream, "test")


async def may_use(client: FrameClient, transactional_id: str) -> bool:
    said = await client.call(InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000), 0)
    return said.error_code != ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def first_bytes(io: ByteIO) -> bytes:
    buffer = memoryview(bytearray(100))
    with trio.fail_after(120):
        while (got := io.receive_now([buffer])) is None:
            await io.readable()
    return bytes(buffer[:got])


async def test_without_options_there_is_no_tls() -> None:
    assert isinstance(open_network(configured(), Stats()), SocketNetwork)


async def test_a_file_that_cannot_be_used_is_reported_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"TLS: .*no\.crt: No such file") as caught:
        open_network(configured(ssl_certificate_location=tmp_path / "no.crt"), Stats())
    assert caught.value.exit_code == ExitCode.USAGE
    with pytest.raises(StartupError, match=r"TLS: .*no\.ca"):
        open_network(configured(upstream_security_protocol="ssl", upstream_ssl_ca_location=tmp_path / "no.ca"), Stats())


async def test_both_sides_meet_and_the_broker_is_known_by_its_name(authority: Authority) -> None:
    files = authority.issue("localhost")
    options = listening(files, upstream_security_protocol="ssl", upstream_ssl_ca_location=authority.ca)
    network = open_network(configured(**options), Stats())
    (listener,) = await network.listen("127.0.0.1", 0, 8)
    async with trio.open_nursery() as nursery:
        got: list[bytes] = []

        async def serve() -> None:
            io = await listener.accept()
            got.append(await first_bytes(io))
            assert io.server_name == "localhost"
            io.close()

        nursery.start_soon(serve)
        io = await network.connect("localhost", listener.port, 5000)
        await io.send_all([b"hello"])
        await eventually(lambda: got == [b"hello"])
        io.close()
        nursery.start_soon(serve_one, listener)
        with pytest.raises(OSError, match=r"certificate is not valid for '127.0.0.1'; see upstream.ssl.ca.location"):
            await network.connect("127.0.0.1", listener.port, 5000)
    listener.close()


async def serve_one(listener: Any) -> None:
    io = await listener.accept()
    with pytest.raises(OSError):
        await first_bytes(io)
    io.close()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "unable to get local issuer certificate; see upstream.ssl.ca.location"),
        ({"upstream_ssl_endpoint_identification_algorithm": "none"}, "unable to get local issuer certificate"),
    ],
)
async def test_a_certificate_of_somebody_else_is_refused(authority: Authority, options: Any, text: str) -> None:
    files = authority.issue("localhost")
    stats = Stats()
    network = open_network(configured(**listening(files), upstream_security_protocol="ssl", **options), stats)
    (listener,) = await network.listen("127.0.0.1", 0, 8)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_one, listener)
        with pytest.raises(OSError, match=text):
            await network.connect("localhost", listener.port, 5000)
    assert stats.clients.connections_refused == {"tls_handshake": 1}
    listener.close()


async def test_a_port_without_tls_is_named(authority: Authority) -> None:
    network = open_network(configured(upstream_security_protocol="ssl", upstream_ssl_ca_location=authority.ca), Stats())
    (listener,) = await SocketNetwork().listen("127.0.0.1", 0, 8)
    async with trio.open_nursery() as nursery:

        async def serve(answer: bytes) -> None:
            io = await listener.accept()
            await io.readable()
            await io.send_all([answer])
            await eventually(io.peer_closed)
            io.close()

        nursery.start_soon(serve, b"\0\0\0\x10" + bytes(16))
        with pytest.raises(OSError, match=r"it speaks no TLS: is it a TLS port\?"):
            await network.connect("localhost", listener.port, 5000)
        with pytest.raises(OSError, match=r"began no TLS within 50 ms: is it a TLS port\?"):
            await network.connect("localhost", listener.port, 50)
    listener.close()


async def test_a_port_without_tls_that_resets_the_connection_is_named_too() -> None:
    network = open_network(configured(upstream_security_protocol="ssl"), Stats())
    (listener,) = await SocketNetwork().listen("127.0.0.1", 0, 8)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reset_one, listener)
        with pytest.raises(OSError, match=r"it ended the connection: is it a TLS port\?"):
            await network.connect("localhost", listener.port, 30_000)
    listener.close()


async def reset_one(listener: SocketListener) -> None:
    """A broker closes a connection whose first bytes are no request; what it has not read makes that a reset."""
    io = await listener.accept()
    await io.readable()
    io.close()


class TestProxy:
    async def test_a_client_of_tls_is_served_as_any(self, authority: Authority) -> None:
        files = authority.issue("localhost")
        async with proxied(**listening(files)) as proxy:
            proxy.brokers.create_topic("t", 1)
            client = await tls_client(proxy.cluster.map.brokers[1].port or 0, files)
            async with client:
                for number in range(20):
                    said = await client.call(produce("t", b"%d" % number * 5000), 7)
                    assert said.responses[0].partition_responses[0].error_code == 0
            assert values_in(proxy.brokers, "t", 0) == [b"%d" % number * 5000 for number in range(20)]

    async def test_who_speaks_no_tls_is_refused_and_counted_and_others_are_served(self, authority: Authority) -> None:
        files = authority.issue("localhost")
        async with proxied(**listening(files)) as proxy:
            async with await proxy.client() as plain:
                with pytest.raises((OSError, trio.BrokenResourceError, EOFError, AssertionError)):
                    await plain.call(ApiVersionsRequest(), 0)
            await eventually(lambda: proxy.stats.clients.connections_refused.get("tls_handshake") == 1)
            async with await tls_client(proxy.port, files) as client:
                assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0

    async def test_a_client_without_the_certificate_that_is_required_is_refused(self, authority: Authority) -> None:
        files, mine = authority.issue("localhost"), authority.issue("me", to="me")
        async with proxied(**listening(files, ssl_client_auth="required", ssl_ca_location=authority.ca)) as proxy:
            async with await tls_client(proxy.port, mine) as client:
                assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
            stranger = await tls_client(proxy.port, TlsFiles(ca=authority.ca))
            async with stranger:
                with pytest.raises((OSError, trio.BrokenResourceError, ssl.SSLError, EOFError, AssertionError)):
                    await stranger.call(ApiVersionsRequest(), 0)
            await eventually(lambda: proxy.stats.clients.connections_refused.get("tls_handshake") == 1)

    async def test_a_certificate_says_who_the_client_is(self, authority: Authority) -> None:
        files, mine = authority.issue("localhost"), authority.issue("me", to="me")
        rules = {
            "ssl_principal_mapping_rules": parse_mapping_rules("RULE:CN=(me),.*/$1/U"),
            "transactional_id_clients": (PermitRule("mine", "User:ME"), PermitRule("other", "User:OTHER")),
        }
        asking = listening(files, ssl_client_auth="requested", ssl_ca_location=authority.ca, **rules)
        async with proxied(**asking) as proxy:
            async with await tls_client(proxy.port, mine) as client:
                assert await may_use(client, "mine")
                assert not await may_use(client, "other")
            async with await tls_client(proxy.port, TlsFiles(ca=authority.ca)) as nobody:
                assert not await may_use(nobody, "mine")
            async with await tls_client(proxy.port, authority.issue("you", to="you")) as client:
                await client.send(ApiVersionsRequest(), 0)
                assert await client.ended()
            assert proxy.stats.refused.refusals["malformed"] == 1

    async def test_one_port_for_all_brokers_by_name(self, authority: Authority) -> None:
        files = authority.issue("kafka.test", "*.kafka.test")
        async with proxied(3, **listening(files, broker_host_pattern="b{id}.kafka.test")) as proxy:
            proxy.brokers.create_topic("t", 3)
            async with await tls_client(proxy.port, files, "kafka.test") as client:
                answer = await client.call(metadata("t"), 4)
            assert isinstance(answer, MetadataResponse)
            found = {row.node_id: (row.host, row.port) for row in answer.brokers}
            assert found == {n: (f"b{n}.kafka.test", proxy.port) for n in (1, 2, 3)}
            for row in answer.topics[0].partitions:
                name = f"b{row.leader_id}.kafka.test"
                async with await tls_client(proxy.port, files, name) as leader:
                    said = await leader.call(produce("t", b"x", partition=row.partition_index), 7)
                    assert said.responses[0].partition_responses[0].error_code == 0
            async with await tls_client(proxy.port, files, "b9.kafka.test") as nobody:
                with pytest.raises((OSError, trio.BrokenResourceError, EOFError, AssertionError)):
                    await nobody.call(metadata("t"), 4)


async def test_new_certificates_are_shown_to_new_clients_and_old_connections_continue(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kproxy.net.tls_context._LOOK_SECONDS", 0.0)
    files = authority.issue("localhost")
    async with proxied(**listening(files)) as proxy, await tls_client(proxy.port, files) as old:
        assert (await old.call(ApiVersionsRequest(), 0)).error_code == 0
        authority.issue("localhost", "rotated.test")
        async with await tls_client(proxy.port, files, "rotated.test") as new:
            assert (await new.call(ApiVersionsRequest(), 0)).error_code == 0
        assert (await old.call(ApiVersionsRequest(), 0)).error_code == 0


async def test_no_request_fails_while_certificates_are_replaced(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificate and key are two files: for a while they do not fit each other, and the former pair is shown."""
    monkeypatch.setattr("kproxy.net.tls_context._LOOK_SECONDS", 0.0)
    files, rotations, answered = authority.issue("localhost"), 5, [0, 0]
    shown: set[bytes | None] = set()
    stop = trio.Event()

    async def write(to: FrameClient, partition: int) -> None:
        said = await to.call(produce("t", b"x" * 1000, partition=partition), 7)
        assert said.responses[0].partition_responses[0].error_code == 0
        answered[partition] += 1

    async def stay() -> None:
        async with await tls_client(proxy.port, TlsFiles(ca=authority.ca)) as client:
            while not stop.is_set():
                await write(client, 0)

    async def come_and_go() -> None:
        while not stop.is_set():
            async with await tls_client(proxy.port, TlsFiles(ca=authority.ca)) as client:
                assert isinstance(client.stream, trio.SSLStream)
                shown.add(client.stream.getpeercert(binary_form=True))
                await write(client, 1)

    async def past(more: int) -> None:
        wanted = [count + more for count in answered]
        await eventually(lambda: all(has >= want for has, want in zip(answered, wanted, strict=True)), 30)

    async with proxied(**listening(files)) as proxy, trio.open_nursery() as nursery:
        proxy.brokers.create_topic("t", 2)
        nursery.start_soon(stay)
        nursery.start_soon(come_and_go)
        assert files.certificate is not None
        for _ in range(rotations):
            await past(3)
            before = files.certificate.read_bytes()
            authority.issue("localhost")
            after = files.certificate.read_bytes()
            files.certificate.write_bytes(before)  # the key alone is new
            await past(3)
            files.certificate.write_bytes(after[: len(after) // 3])
            await past(3)
            files.certificate.write_bytes(after)
        await past(3)
        stop.set()
    assert len(shown) == 1 + rotations
    assert proxy.stats.clients.connections_refused == {}


async def test_kproxy_reaches_a_kproxy_that_speaks_tls(authority: Authority) -> None:
    """Upstream TLS through all that the shell does: there is no fake broker that speaks it."""
    files = authority.issue("localhost", "127.0.0.1")
    async with proxied(**listening(files)) as far:
        far.brokers.create_topic("t", 1)
        options: dict[str, Any] = {"upstream_security_protocol": "ssl", "upstream_ssl_ca_location": authority.ca}
        options["idempotence_enable"] = False  # the far one lets no producer id of a kproxy in
        async with running(f"127.0.0.1:{far.port}", **options) as near:
            await eventually(lambda: near.stats.upstream.ready)
            async with await near.client(1) as client:
                said = await client.call(produce("t", b"x" * 100_000), 7)
                assert said.responses[0].partition_responses[0].error_code == 0
            assert values_in(far.brokers, "t", 0) == [b"x" * 100_000]
