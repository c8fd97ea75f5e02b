"""Somebody who issues tokens, for tests."""

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm


class Issuer:
    """Signs tokens with keys of its own; ``jwks`` is its key set."""

    def __init__(self, *kids: str) -> None:
        self.name = "https://issuer.test"
        self.keys: dict[str, Any] = {kid: rsa.generate_private_key(65537, 2048) for kid in kids}

    def jwks(self) -> dict[str, Any]:
        return {"keys": [{**_public(key), "kid": kid, "use": "sig"} for kid, key in self.keys.items()]}

    def write(self, path: Path) -> str:
        """Puts the key set into a file; its URL."""
        path.write_text(json.dumps(self.jwks()))
        return path.as_uri()

    def add_curve(self, kid: str) -> None:
        self.keys[kid] = ec.generate_private_key(ec.SECP256R1())

    def token(self, kid: str | None, *, algorithm: str = "RS256", key: Any = None, **claims: Any) -> str:
        """A token of alice for kafka, good for a minute, unless ``claims`` say otherwise; None leaves one out."""
        now = int(time.time())
        said = {"sub": "alice", "aud": "kafka", "iss": self.name, "iat": now, "exp": now + 60, **claims}
        said = {name: value for name, value in said.items() if value is not None}
        headers = {} if kid is None else {"kid": kid}
        return jwt.encode(said, self.keys.get(kid or "one") if key is None else key, algorithm, headers)


def _public(key: Any) -> dict[str, Any]:
    algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    made: dict[str, Any] = algorithm.to_jwk(key.public_key(), as_dict=True)
    return made
