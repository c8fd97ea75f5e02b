import pickle
from typing import Any

import pytest

from kproxy.spark.read_options import read_options
from kproxy.spark.security_options import PLAIN_TEXT, Secret, security
from kproxy.spark.sink_options import parse
from kproxy.spark.spark_errors import OptionError

MODULES = "org.apache.kafka.common.security"
JAAS = "kafka.sasl.jaas.config"
PLAIN = f'{MODULES}.plain.PlainLoginModule required username="ann" password="a \\"b\\" = c;d";'
OAUTH = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"
SASL = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", JAAS: PLAIN}
BEARER = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "OAUTHBEARER"}
URL = "kafka.sasl.oauthbearer.token.endpoint.url"


def test_nothing_said_is_plain_text() -> None:
    assert security({"subscribe": "orders"}) == PLAIN_TEXT
    assert security({"kafka.security.protocol": "plaintext"}) == PLAIN_TEXT


def test_a_name_and_a_password_as_spark_users_write_them() -> None:
    found = security({"kafka.SECURITY.protocol": "sasl_ssl", "kafka.sasl.mechanism": "plain", JAAS: PLAIN})
    assert (found.is_tls, found.checks_name, found.protocol) == (True, True, "SASL_SSL")
    assert found.sasl is not None
    assert found.sasl.options == {"username": "ann", "password": 'a "b" = c;d'}


@pytest.mark.parametrize("jaas", [f"{MODULES}.scram.ScramLoginModule required username=ann password='pa ss' ;"])
def test_scram(jaas: str) -> None:
    found = security({**SASL, "kafka.sasl.mechanism": "SCRAM-SHA-512", JAAS: jaas}).sasl
    assert found is not None
    assert (found.mechanism, found.options) == ("SCRAM-SHA-512", {"username": "ann", "password": "pa ss"})


@pytest.mark.parametrize(
    "options",
    [
        {JAAS: f'{OAUTH} clientId="me" clientSecret="s3cret" scope="kafka" ;', URL: "https://idp/token"},
        {
            JAAS: f"{OAUTH} ;",
            URL: "https://idp/token",
            "kafka.sasl.oauthbearer.client.credentials.client.id": "me",
            "kafka.sasl.oauthbearer.client.credentials.client.secret": "s3cret",
            "kafka.sasl.oauthbearer.scope": "kafka",
            "kafka.sasl.login.callback.handler.class": f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
        },
    ],
)
def test_tokens_of_an_endpoint(options: dict[str, str]) -> None:
    found = security({**BEARER, **options}).sasl
    assert found is not None
    assert found.token_url == "https://idp/token"
    assert found.options == {"clientId": "me", "clientSecret": "s3cret", "scope": "kafka"}


def test_stores() -> None:
    found = security(
        {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.location": "/etc/trust.p12",
            "kafka.ssl.truststore.type": "pkcs12",
            "kafka.ssl.truststore.password": "open",
            "kafka.ssl.keystore.key": "KEY",
            "kafka.ssl.keystore.certificate.chain": "CHAIN",
            "kafka.ssl.endpoint.identification.algorithm": "",
        }
    )
    assert found.trust is not None
    assert (found.trust.location, found.trust.password, found.checks_name) == ("/etc/trust.p12", "open", False)
    assert found.keys is not None
    assert found.keys.text == "KEY\nCHAIN"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol: 'TLS' is not valid; valid: PLAINTEXT, SSL"),
        (
            {"kafka.ssl.key.password": "x"},
            "kafka.ssl.key.password: has no effect with .* PLAINTEXT; set that to SSL",
        ),
        ({"kafka.security.protocol": "SSL", JAAS: PLAIN}, f"{JAAS}: has no effect .* set that to SASL_SSL or"),
        ({**SASL, "kafka.sasl.mechanism": "GSSAPI"}, "Kerberos is not supported; valid: PLAIN, SCRAM-SHA-256"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism: is needed"),
        ({**SASL, JAAS: ""}, f"{JAAS}: is needed; valid: "),
        ({**SASL, JAAS: PLAIN[:-1]}, "ends with a semicolon"),
        ({**SASL, JAAS: f'{MODULES}.plain.PlainLoginModule required username="ann;'}, 'must be name="value"'),
        ({**SASL, JAAS: f"{MODULES}.plain.PlainLoginModule required username=ann;"}, "lacks password"),
        ({**SASL, "kafka.sasl.mechanism": "SCRAM-SHA-256"}, "is not for SCRAM-SHA-256; valid: ScramLoginModule"),
        ({**BEARER, JAAS: f"{OAUTH} ;"}, f"{URL}: is needed"),
        ({**BEARER, JAAS: f"{OAUTH} clientId=me ;", URL: "https://idp"}, "lacks clientSecret"),
        ({**BEARER, URL: "file:///t", "kafka.sasl.login.callback.handler.class": "my.Handler"}, "is a Java class"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.keystore.type": "BKS"}, "valid: JKS, PKCS12, PEM"),
        (
            {
                "kafka.security.protocol": "SSL",
                "kafka.ssl.truststore.location": "/a",
                "kafka.ssl.truststore.certificates": "b",
            },
            "not both",
        ),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.endpoint.identification.algorithm": "ldaps"}, "valid: https"),
    ],
)
def test_what_is_wrong_is_named_and_no_secret_shown(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told) as raised:
        security(options)
    assert "c;d" not in str(raised.value)


def test_no_secret_is_shown_by_what_holds_it() -> None:
    assert "c;d" not in repr(security(SASL))
    source = read_options({**SASL, "kafka.bootstrap.servers": "k:9092", "subscribe": "orders"})
    sink = parse({**SASL, "kafka.bootstrap.servers": "k:9092", "transactional.id": "t"}, is_stream=False)
    for holder in (source, sink):
        assert "c;d" not in repr(holder)
        assert holder.security.sasl is not None


def test_it_travels_to_tasks() -> None:
    found: Any = pickle.loads(pickle.dumps(security(SASL)))
    assert found == security(SASL)
    assert repr(found.sasl.options["password"]) == repr(Secret("x"))


def test_the_sink_takes_no_option_of_tls_that_the_source_does_not_know() -> None:
    options = {"kafka.bootstrap.servers": "k:9092", "transactional.id": "t", "kafka.ssl.ca.location": "/etc/ca.pem"}
    with pytest.raises(OptionError, match=r"kafka.ssl.ca.location: no option of the sink"):
        parse(options, is_stream=False)
