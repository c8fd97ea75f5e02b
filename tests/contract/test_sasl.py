"""SASL at a listener that asks for none: an error is returned, and the connection continues."""

import pytest

from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kproxy.codec._generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import ClusterClient


@pytest.mark.parametrize("version", [0, 1])
def test_a_handshake_is_out_of_place(client: ClusterClient, version: int) -> None:
    connection = client.any_broker()
    said = connection.call(SaslHandshakeRequest(mechanism="PLAIN"), version, SaslHandshakeResponse)
    assert (said.error_code, said.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert connection.call(MetadataRequest(topics=[]), 4, MetadataResponse).brokers


@pytest.mark.parametrize("version", [0, 1, 2])
def test_so_is_a_token(client: ClusterClient, version: int) -> None:
    connection = client.any_broker()
    said = connection.call(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), version, SaslAuthenticateResponse)
    assert said.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert connection.call(MetadataRequest(topics=[]), 4, MetadataResponse).brokers
