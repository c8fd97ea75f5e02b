"""How long the certificates in a PEM file hold."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kproxy.net.certificate_validity import validity_of
from kproxy.proxy.certificate_stats import Validity


def certificate(start: datetime, end: datetime, name: str = "kproxy.test") -> bytes:
    """A certificate that signs itself, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = x509.CertificateBuilder().subject_name(named).issuer_name(named).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).not_valid_before(start).not_valid_after(end)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("year", [1999, 2026, 2049, 2050, 2600])
def test_both_times_are_read_in_both_forms(year: int) -> None:
    """From 2050 on a year has four digits (RFC 5280, section 4.1.2.5)."""
    start = datetime(1998, 3, 4, 5, 6, 7, tzinfo=UTC)
    end = datetime(year, 12, 31, 23, 59, 58, tzinfo=UTC)
    assert validity_of(certificate(start, end)) == Validity(start.timestamp(), end.timestamp())


def test_of_several_that_counts_which_ends_first() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    first, last = now + timedelta(days=10), now + timedelta(days=3650)
    chain = [certificate(now, last, "n" * 60), certificate(now, first), certificate(now, last)]
    assert validity_of(b"text before\n" + b"\n".join(chain)) == Validity(now.timestamp(), first.timestamp())


def test_what_can_not_be_read_is_passed_over() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    whole = certificate(now, now + timedelta(days=1))
    head, tail = b"-----BEGIN CERTIFICATE-----\n", b"\n-----END CERTIFICATE-----\n"
    assert validity_of(b"") is None
    for junk in (b"MIIB", b"!!!!", b"MAA=", b"A", b"MIICAA=="):
        assert validity_of(head + junk + tail) is None
        assert validity_of(head + junk + tail + whole) == validity_of(whole)
