"""A listener of a real Kafka that asks for SASL: its settings, its users, and tokens that it takes."""

import base64
import json
import time
from collections.abc import Mapping
from typing import Final

LISTENER: Final = "SASL"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_MODULES: Final = "org.apache.kafka.common.security"


def sasl_settings(users: Mapping[str, str]) -> dict[str, str]:
    """Return the broker settings of a listener that lets these users in (name: password), by any of ``MECHANISMS``.

    OAUTHBEARER takes tokens that nobody signed: see ``unsecured_token``.
    """
    plain = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    prefix = f"listener.name.{LISTENER.lower()}"
    return {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{prefix}.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {plain};",
        f"{prefix}.scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        f"{prefix}.oauthbearer.sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";',
    }


def scram_arguments(users: Mapping[str, str]) -> list[str]:
    """Return the arguments for these users of ``kafka-storage format``."""
    return [
        argument
        for name, password in users.items()
        for mechanism in MECHANISMS
        if mechanism.startswith("SCRAM")
        for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
    ]


def unsecured_token(name: str, seconds: float = 3600) -> str:
    """Return a token without a signature (RFC 7515, appendix A.5) that says who comes, for so many seconds."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": name, "iat": now, "exp": now + seconds})
    return "".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") + "." for part in parts)
