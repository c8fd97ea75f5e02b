"""``kproxy webhook``: adds the sidecar to pods that ask for it, for Kubernetes' API server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from kproxy.config import ExitCode, StartupError, startup_error
from kproxy.config.values import parse_listen_address
from kproxy.injection.wishes import PARSERS, Sidecar, WishRefused, check_resources

_EXAMPLES: Final = """\b
Examples:
  kproxy webhook --certificate tls.crt --key tls.key --image registry.example/kproxy:0.1.0
  kproxy webhook --certificate tls.crt --key tls.key --image kproxy:0.1.0 --bootstrap-servers kafka:9092

\b
Pods ask for the sidecar by the label kproxy.io/inject: "true". Their annotations override the flags:
  kproxy.io/bootstrap-servers: kafka-1:9092,kafka-2:9092
  kproxy.io/config-map: shipper-kproxy
  kproxy.io/memory-limit: 1Gi"""


def _parsed(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    def callback(_: click.Context, __: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(f"{text!r} {error}") from None

    return callback


def _wish(name: str, metavar: str, text: str, **more: Any) -> click.Option:
    return click.Option([f"--{name}"], metavar=metavar, callback=_parsed(PARSERS[name]), help=text, **more)


_FLAGS: Final = [
    click.Option(
        ["--listen"],
        metavar="HOST:PORT",
        default=":8443",
        show_default=True,
        callback=_parsed(parse_listen_address),
        help="Where the API server connects, by HTTPS; without a host all addresses of IPv4 and IPv6.",
    ),
    click.Option(
        ["--certificate"],
        metavar="FILE",
        required=True,
        type=click.Path(path_type=Path),
        help="Certificate of the webhook's Service, PEM. A changed file is used within a second.",
    ),
    click.Option(["--key"], metavar="FILE", required=True, type=click.Path(path_type=Path), help="Its key, PEM."),
    click.Option(
        ["--client-ca"],
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Authority of the API server's client certificate, PEM: no other client is served. [default: all are]",
    ),
    click.Option(
        ["--http"],
        metavar="HOST:PORT",
        callback=_parsed(parse_listen_address),
        help="Where /metrics and /healthz are, by HTTP. [default: /healthz by HTTPS only]",
    ),
    _wish("image", "IMAGE", "Image of the sidecar.", required=True),
    _wish("bootstrap-servers", "LIST", "Brokers of pods that name none; without it each pod must name its own."),
    _wish("cpu-request", "AMOUNT", "Requested CPU of each sidecar.", default="100m", show_default=True),
    _wish("cpu-limit", "AMOUNT", "Limit on CPU of each sidecar; a limit delays responses. [default: none]"),
    _wish("memory-request", "AMOUNT", "Requested memory of each sidecar.", default="96Mi", show_default=True),
    _wish("memory-limit", "AMOUNT", "Limit on memory of each sidecar.", default="384Mi", show_default=True),
    _wish("run-as-user", "ID", "User of each sidecar; any: the cluster's choice.", default="65532", show_default=True),
    _wish("readiness", "WHAT", "A pod is ready while kafka is reached, or while kproxy runs.", default="kafka"),
]


@click.command(params=list(_FLAGS), epilog=_EXAMPLES)
def webhook(listen: Any, certificate: Path, key: Path, client_ca: Path | None, http: Any, **wishes: Any) -> int:
    """Run the admission webhook that adds kproxy to pods, until SIGTERM or SIGINT.

    Kubernetes 1.30 or later: kproxy is added as a native sidecar. The chart installs all of it (webhook.enabled).
    """
    defaults = Sidecar(**wishes)
    try:
        check_resources(defaults)
    except WishRefused as wrong:
        raise click.UsageError(str(wrong)) from None
    import signal

    import trio

    from kproxy.control.logging import configure_logging
    from kproxy.heap import keep_level
    from kproxy.injection.webhook import Listen, serve_webhook
    from kproxy.net.tls_context import TlsFiles

    configure_logging("info", "auto")
    keep_level()
    where = Listen(listen, TlsFiles(certificate, key, ca=client_ca), http)

    async def serve() -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                await nursery.start(serve_webhook, where, defaults)
                async for _ in signals:
                    nursery.cancel_scope.cancel()

    try:
        trio.run(serve)
    except* StartupError as group:
        error = startup_error(group)
    else:
        return ExitCode.OK
    raise error
