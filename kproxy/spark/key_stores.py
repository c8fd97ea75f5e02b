"""Certificates and keys of Java's stores, as PEM: PEM itself, PKCS12, and the trusted certificates of JKS."""

import ssl
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from kproxy.spark.security_options import Secret, Security, Store
from kproxy.spark.spark_errors import OptionError

_PEM: Final = b"-----BEGIN "
_JKS: Final = b"\xfe\xed\xfe\xed"
_JKS_TRUSTED: Final = 2
_I32: Final = Struct(">I")
_JKS_HEAD: Final = 12
_JKS_TIME: Final = 8


class Key(NamedTuple):
    """A certificate chain and its private key, PEM; ``password`` unlocks the key."""

    pem: Secret
    password: Secret | None


def trusted(store: Store) -> str:
    """The authorities that sign the brokers' certificates, PEM. OptionError."""
    data = _content(store)
    if _PEM in data:
        return data.decode("ascii", "replace")
    if data.startswith(_JKS):
        found = _jks_certificates(store, data)
    else:
        _, _, others = _pkcs12(store, data, store.password)
        found = [ssl.DER_cert_to_PEM_cert(each) for each in others]
    if not found:
        raise OptionError(f"{store.name}.location: {store.location!r} has no trusted certificate")
    return "".join(found)


def key(security: Security) -> Key | None:
    """What the client shows of itself; None if it shows nothing. OptionError."""
    store = security.keys
    if store is None:
        return None
    data = _content(store)
    if _PEM in data:
        return Key(Secret(data.decode("ascii", "replace")), security.key_password)
    if data.startswith(_JKS):
        convert = "keytool -importkeystore -srckeystore OLD -destkeystore NEW -deststoretype PKCS12"
        raise OptionError(f"{store.name}.location: {store.location!r} is a JKS key store; convert it: {convert}")
    pem, own, others = _pkcs12(store, data, store.password)
    if not pem:
        raise OptionError(f"{store.name}.location: {store.location!r} has no private key")
    return Key(Secret(pem + "".join(map(ssl.DER_cert_to_PEM_cert, [*own, *others]))), None)


def _content(store: Store) -> bytes:
    if store.text is not None:
        return store.text.encode()
    try:
        return Path(store.location or "").read_bytes()
    except OSError as error:
        raise OptionError(f"{store.name}.location: {store.location!r}: {error.strerror or error}") from None


def _jks_certificates(store: Store, data: bytes) -> list[str]:
    """The trusted certificates of a JKS file; they are not encrypted, and the checksum of the file is not checked."""

    def text(at: int, size: Struct) -> tuple[bytes, int]:
        (length,) = size.unpack_from(data, at)
        return data[at + size.size : at + size.size + length], at + size.size + length

    try:
        _, _, count = Struct(">III").unpack_from(data)
        found, at, short = [], _JKS_HEAD, Struct(">H")
        for _ in range(count):
            (kind,) = _I32.unpack_from(data, at)
            _alias, at = text(at + _I32.size, short)
            if kind != _JKS_TRUSTED:
                raise OptionError(f"{store.name}.location: {store.location!r} has private keys; give a trust store")
            _type, at = text(at + _JKS_TIME, short)
            certificate, at = text(at, _I32)
            found.append(ssl.DER_cert_to_PEM_cert(certificate))
    except StructError:
        raise OptionError(f"{store.name}.location: {store.location!r} is a damaged JKS file") from None
    return found


def _pkcs12(store: Store, data: bytes, password: Secret | None) -> tuple[str, list[bytes], list[bytes]]:
    """The key as PEM, its certificate, and all other certificates, of a PKCS12 file."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        what = "is no PEM file, and PKCS12 needs a package: pip install cryptography"
        raise OptionError(f"{store.name}.location: {store.location!r} {what}") from None
    try:
        found = pkcs12.load_pkcs12(data, password.encode() if password is not None else None)
    except ValueError:
        what = f"can't be opened with {store.name}.password, or is none of PEM, PKCS12 and JKS"
        raise OptionError(f"{store.name}.location: {store.location!r} {what}") from None
    der = serialization.Encoding.DER
    pem = b""
    if found.key is not None:
        form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        pem = found.key.private_bytes(serialization.Encoding.PEM, form, plain)
    own = [found.cert.certificate.public_bytes(der)] if found.cert is not None else []
    return pem.decode(), own, [each.certificate.public_bytes(der) for each in found.additional_certs]
