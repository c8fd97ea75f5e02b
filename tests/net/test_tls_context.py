"""Certificates and keys from files."""

import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from kproxy.net.certificate_validity import validity_of
from kproxy.net.tls_context import TlsContext, TlsError, TlsFiles, client_context, server_context
from kproxy.proxy.certificate_stats import Validity
from tests.net.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def lock(files: TlsFiles, password: bytes) -> None:
    assert files.key is not None
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password),
    )
    files.key.write_bytes(locked)


def test_nothing_below_tls_1_2_is_spoken(authority: Authority) -> None:
    files = authority.issue("kafka.test")
    for context in (server_context(files, "none"), client_context(files, checks_name=True)):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("auth", "mode"), [("none", ssl.CERT_NONE), ("requested", ssl.CERT_OPTIONAL), ("required", ssl.CERT_REQUIRED)]
)
def test_whether_clients_show_a_certificate(authority: Authority, auth: str, mode: ssl.VerifyMode) -> None:
    assert server_context(authority.issue("kafka.test"), auth).verify_mode is mode


def test_brokers_are_always_verified_their_names_unless_that_is_off(authority: Authority) -> None:
    files = TlsFiles(ca=authority.ca)
    named, unnamed = client_context(files, checks_name=True), client_context(files, checks_name=False)
    assert (named.check_hostname, unnamed.check_hostname) == (True, False)
    assert named.verify_mode is unnamed.verify_mode is ssl.CERT_REQUIRED
    assert client_context(TlsFiles(), checks_name=True).cert_store_stats()["x509_ca"] >= 0


def test_a_locked_key_is_unlocked_by_the_first_line_of_a_file(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue("kafka.test")
    lock(files, b"open sesame")
    password = tmp_path / "password"
    password.write_text("open sesame\nnot this\n")
    server_context(replace(files, key_password=password), "none")
    with pytest.raises(TlsError, match=r"kproxy\.key: the key is locked"):
        server_context(files, "none")
    password.write_text("wrong\n")
    with pytest.raises(TlsError, match=r"the key is locked, and ssl.key.password.location does not unlock it"):
        server_context(replace(files, key_password=password), "none")


def test_what_is_wrong_with_a_file_is_said_and_which(authority: Authority, tmp_path: Path) -> None:
    files, other = authority.issue("kafka.test"), authority.issue("other.test", to="other")
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    cases = {
        r"gone\.pem: No such file": replace(files, certificate=tmp_path / "gone.pem"),
        r"junk\.pem: no PEM certificate with its key": replace(files, certificate=junk, key=None),
        r"junk\.pem: no PEM certificates": replace(files, ca=junk),
        r"other\.key: the key is not that of the certificate in .*kproxy\.crt": replace(files, key=other.key),
    }
    for text, bad in cases.items():
        with pytest.raises(TlsError, match=text):
            server_context(bad, "none")


class TestReload:
    def test_new_files_make_a_new_context_a_second_later(self, authority: Authority) -> None:
        files, now = authority.issue("kafka.test"), [0.0]
        context = TlsContext(files, lambda: server_context(files, "none"), lambda: now[0])
        first = context.current()
        authority.issue("kafka.test", "new.test")
        assert context.current() is first
        now[0] = 1.0
        second = context.current()
        assert second is not first
        now[0] = 2.0
        assert context.current() is second

    def test_bad_files_leave_the_old_context_until_they_are_good(
        self, authority: Authority, capsys: pytest.CaptureFixture[str]
    ) -> None:
        files, now = authority.issue("kafka.test"), [0.0]
        context = TlsContext(files, lambda: server_context(files, "none"), lambda: now[0])
        first = context.current()
        assert files.certificate is not None
        whole = files.certificate.read_bytes()
        files.certificate.write_bytes(whole[:100])
        now[0] = 1.0
        assert context.current() is first
        files.certificate.unlink()
        now[0] = 2.0
        assert context.current() is first
        assert "keeping the old ones" in capsys.readouterr().out
        files.certificate.write_bytes(whole)
        now[0] = 3.0
        assert context.current() is not first

    def test_it_is_known_how_long_the_certificate_in_use_holds(self, authority: Authority) -> None:
        files, now, told = authority.issue("kafka.test"), [0.0], list[Validity | None]()
        context = TlsContext(files, lambda: server_context(files, "none"), lambda: now[0], told.append)
        assert files.certificate is not None
        assert told == [validity_of(files.certificate.read_bytes())]
        authority.issue("kafka.test", "new.test")
        now[0] = 1.0
        context.current()
        assert len(told) == 2
        files.certificate.write_bytes(b"junk")
        now[0] = 2.0
        context.current()
        assert len(told) == 2

    def test_files_that_are_bad_at_the_start_are_an_error(self, tmp_path: Path) -> None:
        files = TlsFiles(tmp_path / "none.crt")
        with pytest.raises(TlsError):
            TlsContext(files, lambda: server_context(files, "none"), lambda: 0.0)
