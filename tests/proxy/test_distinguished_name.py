"""Subjects as Java 17's X500Principal.getName() writes them; the expected texts are its own."""

from contextlib import suppress
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import Name, NameAttribute, RelativeDistinguishedName
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from kproxy.proxy.distinguished_name import subject_of

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(subject: Name) -> bytes:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(Name([])).public_key(KEY.public_key())
    builder = builder.serial_number(5).not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
    signed = builder.not_valid_after(datetime(2040, 1, 1, tzinfo=UTC)).sign(KEY, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.DER)


def common(name: str) -> NameAttribute:
    return NameAttribute(NameOID.COMMON_NAME, name)


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (
            Name(
                [
                    NameAttribute(NameOID.COUNTRY_NAME, "DE"),
                    NameAttribute(NameOID.ORGANIZATION_NAME, 'A, B + C=D "x" <y>; #z \\'),
                    NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "  two  "),
                    common("naïve ü"),
                ]
            ),
            'CN=naïve ü,OU=\\ \\ two\\ \\ ,O=A\\, B \\+ C\\=D \\"x\\" \\<y\\>\\; \\#z \\\\,C=DE',
        ),
        (
            Name(
                [
                    RelativeDistinguishedName([common("a"), NameAttribute(NameOID.USER_ID, "u1")]),
                    RelativeDistinguishedName([NameAttribute(NameOID.DOMAIN_COMPONENT, "ex")]),
                    RelativeDistinguishedName(
                        [
                            NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, "s"),
                            NameAttribute(NameOID.LOCALITY_NAME, "l"),
                        ]
                    ),
                ]
            ),
            "L=l+ST=s,DC=ex,CN=a+UID=u1",
        ),
        (
            Name([NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.c"), NameAttribute(NameOID.SERIAL_NUMBER, "7")]),
            "2.5.4.5=#130137,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        (Name([NameAttribute(NameOID.TITLE, "Dr"), common(" ")]), "CN=\\ ,2.5.4.12=#0c024472"),
        (Name([common("a" * 60), NameAttribute(NameOID.ORGANIZATION_NAME, "o" * 200)]), f"O={'o' * 200},CN={'a' * 60}"),
        (Name([]), ""),
    ],
)
def test_a_subject_reads_as_in_java(subject: Name, text: str) -> None:
    assert subject_of(certificate(subject)) == text


def test_what_is_no_utf8_is_written_as_it_is() -> None:
    wide = NameAttribute(NameOID.COMMON_NAME, "bm", _type=_ASN1Type.BMPString)
    assert subject_of(certificate(Name([wide]))) == "CN=#1e040062006d"


def test_a_certificate_cut_anywhere_is_none() -> None:
    whole = certificate(Name([common("alice")]))
    for size in range(len(whole)):
        with pytest.raises(ValueError, match="no certificate"):
            subject_of(whole[:size])


@given(st.binary(max_size=300))
def test_any_bytes_are_a_certificate_or_none(data: bytes) -> None:
    with suppress(ValueError):
        subject_of(data)
