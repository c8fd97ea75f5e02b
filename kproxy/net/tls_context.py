"""Certificates and keys from files, which may be replaced while connections live (RFC 8446; TLS 1.2 at least)."""

import ssl
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import structlog
import trio

from kproxy.config import ExitCode, StartupError
from kproxy.config.process_options import ControlOptions
from kproxy.net.certificate_validity import validity_of
from kproxy.net.file_stamps import file_stamps
from kproxy.proxy.certificate_stats import CertificateStats, Validity

log = structlog.get_logger("kproxy.tls")

#: Files are checked for changes no more often than this.
_LOOK_SECONDS: Final = 1.0
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


#: Takes how long a certificate holds that comes into use.
NoteValidity: TypeAlias = Callable[[Validity | None], None]


class TlsError(Exception):
    """A file cannot be used; the text says which, why, and what would be right."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where certificates are, all PEM."""

    certificate: Path | None = None
    #: None: the key is in the certificate's file.
    key: Path | None = None
    #: The file whose first line unlocks the key.
    key_password: Path | None = None
    #: Who signs the peers' certificates; None: the system's authorities.
    ca: Path | None = None

    def paths(self) -> Sequence[Path]:
        return [path for path in (self.certificate, self.key, self.key_password, self.ca) if path is not None]


def server_context(files: TlsFiles, client_auth: str) -> ssl.SSLContext:
    """For connections that are accepted; ``client_auth`` as Kafka's ssl.client.auth. TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, files)
    context.verify_mode = _CLIENT_AUTH[client_auth]
    context.sni_callback = _note_name
    # a client that closes after its last response, without having read a ticket, would end with a reset
    context.num_tickets = 0
    return _hardened(context)


def client_context(files: TlsFiles, *, checks_name: bool) -> ssl.SSLContext:
    """For connections to brokers; ``checks_name``: the certificate must be of the host that is connected to."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = checks_name
    if files.ca is None:
        context.load_default_certs()
    _load(context, files)
    return _hardened(context)


def _hardened(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    return context


def _note_name(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
    """Keeps the name that a client asked for with the connection, where ``asked_name`` finds it."""
    connection.kproxy_asked_name = name  # type: ignore[union-attr]


def asked_name(connection: ssl.SSLObject) -> str | None:
    """The name that the client of an accepted connection asked for (RFC 6066), if it did."""
    name: str | None = getattr(connection, "kproxy_asked_name", None)
    return name


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    for path in files.paths():
        try:
            path.read_bytes()
        except OSError as error:
            raise TlsError(f"{path}: {error.strerror or error}") from None
    if files.ca is not None:
        try:
            context.load_verify_locations(files.ca)
        except ssl.SSLError:
            raise TlsError(f"{files.ca}: no PEM certificates (-----BEGIN CERTIFICATE-----)") from None
    if files.certificate is not None:
        try:
            context.load_cert_chain(files.certificate, files.key, _password(files))
        except ssl.SSLError as error:
            raise TlsError(_why(files, error)) from None


def _password(files: TlsFiles) -> Callable[[], str]:
    """Asked for only if the key is locked; without it OpenSSL would ask at the terminal."""
    return lambda: "" if files.key_password is None else files.key_password.read_text().partition("\n")[0]


def _is_locked(key: Path | None) -> bool:
    """OpenSSL tells a locked key from a broken one by no reason that would be the same in all versions."""
    return key is not None and b"ENCRYPTED" in key.read_bytes()


def _why(files: TlsFiles, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{files.key or files.certificate}: the key is not that of the certificate in {files.certificate}"
    if _is_locked(files.key or files.certificate):
        return f"{files.key or files.certificate}: the key is locked, and ssl.key.password.location does not unlock it"
    return f"{files.certificate}: no PEM certificate with its key ({error.reason or error})"


class TlsContext:
    """A context that is rebuilt when one of its files has changed; open connections keep theirs."""

    def __init__(
        self,
        files: TlsFiles,
        make: Callable[[], ssl.SSLContext],
        clock: Callable[[], float],
        note: NoteValidity = lambda _: None,
    ) -> None:
        """TlsError if it can't be made; later the last one that could be made stays in use. ``clock``: seconds.

        ``note`` takes how long each certificate holds that comes into use.
        """
        self._files = files
        self._make = make
        self._note = note
        self._clock = clock
        self._seen = file_stamps(files.paths())
        self._looked_at = clock()
        self._context = make()
        self._note_validity()

    def current(self) -> ssl.SSLContext:
        """The context of the files as they are now, or were a second ago."""
        now = self._clock()
        if now >= self._looked_at + _LOOK_SECONDS:
            self._looked_at = now
            self.reload()
        return self._context

    def reload(self) -> None:
        seen = file_stamps(self._files.paths())
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._context = self._make()
        except TlsError as error:
            log.error("new certificates cannot be used; keeping the old ones", reason=str(error))
        else:
            log.info("certificates loaded", files=[str(path) for path in self._files.paths()])
            self._note_validity()

    def _note_validity(self) -> None:
        if self._files.certificate is not None:
            with suppress(OSError):  # it goes as it comes into use: the next one is read as well
                self._note(validity_of(self._files.certificate.read_bytes()))


@contextmanager
def silence_unreadable_names() -> Iterator[None]:
    """While the block lasts nothing is written to stderr where a client asks for a TLS name that is not ASCII.

    The handshake fails in any case and is logged and counted like any other. Any client could otherwise fill the
    log, for Python reports what it can't raise (here: bytes that are no name) to ``sys.unraisablehook``.
    """
    usual = sys.unraisablehook

    def hook(fault: "sys.UnraisableHookArgs") -> None:
        if not (isinstance(fault.exc_value, UnicodeDecodeError) and isinstance(fault.object, bytes)):
            usual(fault)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual


def control_context(config: ControlOptions, stats: CertificateStats) -> ssl.SSLContext | None:
    """A context for control.http, made inside trio; None without a certificate. StartupError names a bad file."""
    certificate = config.control_ssl_certificate_location
    if certificate is None:
        return None
    files = TlsFiles(certificate, config.control_ssl_key_location, config.control_ssl_key_password_location)
    note = partial(stats.uses, "control.ssl.certificate.location")
    return renewed_context("control.ssl", files, note=note)


def renewed_context(
    option: str, files: TlsFiles, client_auth: str = "none", note: NoteValidity = lambda _: None
) -> ssl.SSLContext:
    """A context whose connections get the certificate that is in its file when they are opened.

    ``client_auth``: as ``server_context``; ``note``: as ``TlsContext``. Made inside trio. StartupError names the option
    and a file that is bad.
    """

    def make() -> ssl.SSLContext:
        return server_context(files, client_auth)

    try:
        kept, context = TlsContext(files, make, trio.current_time, note), make()
    except TlsError as error:
        raise StartupError(f"{option}: {error}", ExitCode.USAGE) from None

    def use_current(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, of: ssl.SSLContext) -> None:
        connection.context = kept.current()

    context.sni_callback = use_current
    return context
