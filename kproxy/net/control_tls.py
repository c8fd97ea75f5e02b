"""TLS of the HTTP listeners: control.http, as the configuration has it, and the webhook."""

import ssl

import trio

from kproxy.config import ExitCode, StartupError
from kproxy.config.process_options import ControlOptions
from kproxy.net.tls_context import TlsContext, TlsError, TlsFiles, server_context


def control_context(config: ControlOptions) -> ssl.SSLContext | None:
    """A context for control.http, made inside trio; None without a certificate. StartupError names a bad file."""
    certificate = config.control_ssl_certificate_location
    if certificate is None:
        return None
    files = TlsFiles(certificate, config.control_ssl_key_location, config.control_ssl_key_password_location)
    return renewed_context("control.ssl", files)


def renewed_context(option: str, files: TlsFiles) -> ssl.SSLContext:
    """A context whose connections get the certificate that is in its file when they are opened.

    Made inside trio. StartupError names the option and a file that is bad.
    """

    def make() -> ssl.SSLContext:
        return server_context(files, "none")

    try:
        kept, context = TlsContext(files, make, trio.current_time), make()
    except TlsError as error:
        raise StartupError(f"{option}: {error}", ExitCode.USAGE) from None

    def use_current(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, of: ssl.SSLContext) -> None:
        connection.context = kept.current()

    context.sni_callback = use_current
    return context
