"""Users for tests of logins, and the clients' side of SCRAM."""

import hashlib
import hmac
from base64 import b64decode, b64encode

from kproxy.proxy.client_login.stored_credentials import LEAST_ITERATIONS, SCRAM_HASHES, Credentials, make_verifier

PASSWORD = "pencil, p=encil"
VERIFIERS = {
    ("alice", mechanism): make_verifier(mechanism, PASSWORD, b"0123456789abcdef", LEAST_ITERATIONS)
    for mechanism in SCRAM_HASHES
}
USERS = Credentials(b"d" * 32, VERIFIERS)


class ScramClient:
    """What a client says."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str = "cli", header: str = "n,,") -> None:
        self._hash = SCRAM_HASHES[mechanism]
        self._password = password
        self._header = header
        self._bare = f"n={user},r={nonce}"
        self.server_signature = b""

    def first(self) -> bytes:
        return (self._header + self._bare).encode()

    def final(self, challenge: bytes) -> bytes:
        said = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), b64decode(said["s"]), int(said["i"]))
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        without = f"c={b64encode(self._header.encode()).decode()},r={said['r']}"
        message = f"{self._bare},{challenge.decode()},{without}".encode()
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), message, self._hash)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self.server_signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), message, self._hash)
        return f"{without},p={b64encode(proof).decode()}".encode()
