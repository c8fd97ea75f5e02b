from pathlib import Path
from struct import pack

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from kproxy.spark.key_stores import key, trusted
from kproxy.spark.security_options import KEYS, TRUST, Secret, Security, Store
from kproxy.spark.spark_errors import OptionError
from tests.net.certificates import Authority

PASSWORD = Secret("changeit")


def jks(certificates: list[bytes], kind: int = 2) -> bytes:
    """As keytool writes it; the checksum at the end is never checked."""
    entries = b"".join(
        pack(">IH", kind, 2) + b"ca" + bytes(8) + pack(">H", 5) + b"X.509" + pack(">I", len(each)) + each
        for each in certificates
    )
    return b"\xfe\xed\xfe\xed" + pack(">II", 2, len(certificates)) + entries + bytes(20)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def certificates(pem: str) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem.encode())


@pytest.mark.parametrize("form", ["pem", "text", "jks", "p12"])
def test_trusted_certificates_of_every_form(authority: Authority, tmp_path: Path, form: str) -> None:
    ca = certificates(authority.ca.read_text())
    der = [each.public_bytes(serialization.Encoding.DER) for each in ca]
    path = tmp_path / "trust"
    if form == "text":
        store = Store(TRUST, text=Secret(authority.ca.read_text()))
    else:
        path.write_bytes(
            {
                "pem": authority.ca.read_bytes,
                "jks": lambda: jks(der),
                "p12": lambda: pkcs12.serialize_java_truststore(
                    [pkcs12.PKCS12Certificate(each, b"ca") for each in ca],
                    serialization.BestAvailableEncryption(PASSWORD.encode()),
                ),
            }[form]()
        )
        store = Store(TRUST, str(path), password=PASSWORD)
    assert certificates(trusted(store)) == ca


@pytest.mark.parametrize("form", ["pem", "p12"])
def test_a_key_with_its_certificates(authority: Authority, tmp_path: Path, form: str) -> None:
    files = authority.issue("client", to="client")
    assert files.certificate is not None
    assert files.key is not None
    chain = certificates(files.certificate.read_text())
    path = tmp_path / "keys"
    if form == "pem":
        path.write_bytes(files.key.read_bytes() + files.certificate.read_bytes())
    else:
        private = serialization.load_pem_private_key(files.key.read_bytes(), None)
        locked = serialization.BestAvailableEncryption(PASSWORD.encode())
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"k", private, chain[0], chain[1:], locked))  # type: ignore[arg-type]
    found = key(Security(is_tls=True, keys=Store(KEYS, str(path), password=PASSWORD)))
    assert found is not None
    assert certificates(found.pem) == chain
    assert "PRIVATE KEY" in found.pem
    assert "PRIVATE" not in repr(found)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "No such file"),
        (b"nothing", "is none of PEM, PKCS12 and JKS"),
        (jks([], 2), "no trusted certificate"),
        (jks([b"x"], 1), "has private keys; give a trust store"),
        (jks([b"x"])[:30], "damaged JKS"),
    ],
)
def test_a_trust_store_that_is_none(tmp_path: Path, content: bytes | None, told: str) -> None:
    path = tmp_path / "store"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OptionError, match=rf"kafka.ssl.truststore.location: .*{told}"):
        trusted(Store(TRUST, str(path), password=PASSWORD))


def test_a_key_of_jks_is_to_be_converted(tmp_path: Path) -> None:
    path = tmp_path / "store.jks"
    path.write_bytes(jks([b"x"], 1))
    with pytest.raises(OptionError, match="keytool -importkeystore"):
        key(Security(keys=Store(KEYS, str(path))))
