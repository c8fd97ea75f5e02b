import base64
import json
import time

from kproxy.testing.kafka_sasl import sasl_settings, scram_arguments, unsecured_token


def test_users_are_known_by_all_mechanisms() -> None:
    settings = sasl_settings({"alice": "secret"})
    assert settings["sasl.enabled.mechanisms"] == "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
    assert 'user_alice="secret";' in settings["listener.name.sasl.plain.sasl.jaas.config"]
    assert scram_arguments({"alice": "secret"}) == [
        *("--add-scram", "SCRAM-SHA-256=[name=alice,password=secret]"),
        *("--add-scram", "SCRAM-SHA-512=[name=alice,password=secret]"),
    ]


def test_a_token_that_nobody_signed() -> None:
    head, claims, signature = unsecured_token("alice", 60).split(".")
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "none"}
    said = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert said["sub"] == "alice"
    assert 0 < said["exp"] - time.time() <= 60
    assert not signature
