"""Stored credentials: what proves a password without being one (RFC 5802: salt, iterations, StoredKey, ServerKey).

A file of them has one line for each user and mechanism: a verifier, a space, the user's name. Its line ``decoy`` bears
a secret of which credentials are made up for users that do not exist, so that nobody can find out who does.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

#: SCRAM's mechanisms and their hashes, the strongest first.
SCRAM_HASHES: Final = {"SCRAM-SHA-512": "sha512", "SCRAM-SHA-256": "sha256"}
#: As Kafka has it; a client refuses fewer (RFC 7677).
LEAST_ITERATIONS: Final = 4_096
MOST_ITERATIONS: Final = 1_000_000
#: Kafka's brokers take no more.
USUAL_ITERATIONS: Final = 16_384
SALT_BYTES: Final = 16
DECOY_BYTES: Final = 32

_DECOY: Final = "decoy "
_LINE: Final = re.compile(r"(SCRAM-SHA-(?:256|512))\$([1-9][0-9]{0,6}):([^$:\s]+)\$([^$:\s]+):([^$:\s]+) (.+)")


class Verifier(NamedTuple):
    """What is stored of one user's password for one mechanism."""

    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def is_of(self, password: str) -> bool:
        """Whether the password is the one; takes as long as ``make`` did, whatever the response."""
        made = make_verifier(self.mechanism, password, self.salt, self.iterations)
        return hmac.compare_digest(made.stored_key, self.stored_key)


def make_verifier(mechanism: str, password: str, salt: bytes, iterations: int) -> Verifier:
    """What to store of a password. Kafka takes passwords as UTF-8, without SASLprep, and so does this."""
    name = SCRAM_HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode("utf-8", "surrogatepass"), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return Verifier(mechanism, iterations, salt, stored_key, hmac.digest(salted, b"Server Key", name))


class Credentials:
    """All users of a file."""

    def __init__(self, decoy: bytes, verifiers: Mapping[tuple[str, str], Verifier]) -> None:
        """``verifiers`` by user's name and mechanism; ``decoy``: the secret of the file."""
        self.decoy = decoy
        self.verifiers = dict(verifiers)
        shapes = Counter(map(_shape, self.verifiers.values()))
        self._shapes = [shape for shape, _ in shapes.most_common()]
        users = {name for name, _ in self.verifiers}
        preferred = Counter(_shape(made) for name in users if (made := self._preferred(name)) is not None)
        #: For PLAIN: the time of a check must not tell whether the user exists.
        self._plain_shapes = [shape for shape, _ in preferred.most_common()]

    def for_scram(self, name: str, mechanism: str) -> tuple[Verifier, bool]:
        """What to compare a user's proof with, and whether there is such a user."""
        made_up = self._made_up(name, mechanism, [shape for shape in self._shapes if shape.mechanism == mechanism])
        found = self.verifiers.get((name, mechanism))
        return (made_up, False) if found is None else (found, True)

    def for_plain(self, name: str) -> tuple[Verifier, bool]:
        """What to compare a user's password with, and whether there is such a user."""
        made_up = self._made_up(name, next(iter(SCRAM_HASHES)), self._plain_shapes)
        found = self._preferred(name)
        return (made_up, False) if found is None else (found, True)

    def _preferred(self, name: str) -> Verifier | None:
        return next((self.verifiers[name, each] for each in SCRAM_HASHES if (name, each) in self.verifiers), None)

    def _made_up(self, name: str, mechanism: str, shapes: Sequence["_Shape"]) -> Verifier:
        """A verifier of the most common shape, the same at each call; no password fits it."""
        kind, iterations, size = shapes[0] if shapes else _Shape(mechanism, USUAL_ITERATIONS, SALT_BYTES)

        def some(what: str, count: int) -> bytes:
            seed = hmac.digest(self.decoy, f"{what}\0{kind}\0{name}".encode("utf-8", "surrogatepass"), "sha512")
            return hashlib.shake_256(seed).digest(count)

        key_bytes = hashlib.new(SCRAM_HASHES[kind]).digest_size
        return Verifier(kind, iterations, some("salt", size), some("stored", key_bytes), some("server", key_bytes))


class _Shape(NamedTuple):
    """What the time of a check depends on."""

    mechanism: str
    iterations: int
    salt_bytes: int


def _shape(made: Verifier) -> _Shape:
    return _Shape(made.mechanism, made.iterations, len(made.salt))


def parse_credentials(text: str) -> Credentials:
    """Reads a file's text. ValueError names the line that is wrong, and shows nothing of it."""
    decoy: bytes | None = None
    verifiers: dict[tuple[str, str], Verifier] = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(_DECOY):
            decoy = _bytes(line.removeprefix(_DECOY).strip(), number)
            continue
        name, verifier = _parse_line(line, number)
        if (name, verifier.mechanism) in verifiers:
            raise ValueError(f"line {number}: the user of this line has {verifier.mechanism} twice")
        verifiers[name, verifier.mechanism] = verifier
    if decoy is None or len(decoy) < DECOY_BYTES:
        raise ValueError("its line 'decoy ...' is missing: make the file with 'kproxy credentials add'")
    return Credentials(decoy, verifiers)


def _parse_line(line: str, number: int) -> tuple[str, Verifier]:
    match = _LINE.fullmatch(line)
    if match is None:
        wanted = "MECHANISM$ITERATIONS:SALT$STOREDKEY:SERVERKEY NAME"
        raise ValueError(f"line {number} must be {wanted}: make it with 'kproxy credentials add'")
    mechanism, iterations = match[1], int(match[2])
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise ValueError(f"line {number}: iterations must be from {LEAST_ITERATIONS} to {MOST_ITERATIONS}")
    salt, stored_key, server_key = (_bytes(match[group], number) for group in (3, 4, 5))
    size = hashlib.new(SCRAM_HASHES[mechanism]).digest_size
    if len(stored_key) != size or len(server_key) != size or not salt:
        raise ValueError(f"line {number}: the keys of {mechanism} have {size} bytes each, and there is a salt")
    return match[6], Verifier(mechanism, iterations, salt, stored_key, server_key)


def _bytes(text: str, number: int) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Base64Error:
        raise ValueError(f"line {number}: no base64") from None


def show_credentials(credentials: Credentials) -> str:
    """The text of a file."""
    lines = [
        "# Made by 'kproxy credentials': one line for each user and mechanism.",
        f"{_DECOY}{_text(credentials.decoy)}",
    ]
    lines += (_show(name, verifier) for (name, _), verifier in sorted(credentials.verifiers.items()))
    return "\n".join(lines) + "\n"


def _show(name: str, made: Verifier) -> str:
    keys = f"{_text(made.stored_key)}:{_text(made.server_key)}"
    return f"{made.mechanism}${made.iterations}:{_text(made.salt)}${keys} {name}"


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def check_name(name: str) -> None:
    """ValueError if a user can't be called so."""
    if not name or not name.isprintable() or name != name.strip():
        raise ValueError("a user's name must be printable, on one line, without spaces around it, and not empty")
