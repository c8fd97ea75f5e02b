"""The settings of a sidecar: the defaults of the webhook, overridden by a pod's annotations."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import Any, Final

from kproxy.config.values import parse_address, parse_listen_address, suggest, words
from kproxy.errors import KproxyError

PREFIX: Final = "kproxy.io/"
#: The port of health and metrics in each pod.
HTTP_PORT: Final = 19644
_UNITS: Final[dict[str, int]] = {
    "": 1,
    **{f"{letter}": 1000**power for power, letter in enumerate("kMGT", 1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGT", 1)},
}
_SHOWN: Final = 100


class WishRefused(KproxyError):
    """A wish that cannot be met; the text names it, its value and what is valid."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """One sidecar. Each field is a wish of the same name, with hyphens."""

    image: str
    #: None: the file in ``config_map`` names them.
    bootstrap_servers: str | None = None
    #: None: as the file says, or kproxy's default.
    listen: str | None = None
    #: A ConfigMap with kproxy.yaml, in the pod's namespace.
    config_map: str | None = None
    #: A Secret whose files the configuration names, in the pod's namespace.
    secret: str | None = None
    cpu_request: str = "100m"
    cpu_limit: str | None = None
    memory_request: str = "96Mi"
    memory_limit: str = "384Mi"
    #: ``any``: the cluster chooses it (OpenShift).
    run_as_user: str = "65532"
    #: What the pod's readiness follows: ``kafka`` (``/readyz``), or ``kproxy`` alone (``/healthz``).
    readiness: str = "kafka"


def _parse_servers(text: str) -> str:
    found = [str(parse_address(word)) for word in words(text, "")]
    if not found:
        raise ValueError("must be HOST:PORT,HOST:PORT")
    return ",".join(found)


def _parse_listen(text: str) -> str:
    address = parse_listen_address(text)
    if not address.port:
        raise ValueError("the port must be a number from 1 to 65535")
    if address.port == HTTP_PORT:
        raise ValueError(f"must have another port: {HTTP_PORT} is that of kproxy's health and metrics")
    return str(address)


def _matching(regex: str, wanted: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not re.fullmatch(regex, text):
            raise ValueError(f"must be {wanted}")
        return text

    return parse


_parse_name = _matching(
    r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    "a name in Kubernetes: small letters, digits, hyphens and dots",
)
_parse_cpu = _matching(r"([0-9]{1,6})(\.[0-9]{1,3}|m)?", "an amount of CPU, such as 100m or 0.5")
_parse_memory = _matching(r"([0-9]{1,15})(k|M|G|T|Ki|Mi|Gi|Ti)?", "an amount of memory, such as 96Mi or 1Gi")
#: By the name of a wish, what parses it; ValueError says what is valid.
PARSERS: Final[Mapping[str, Callable[[str], str]]] = {
    "image": _matching(
        r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}", "the reference of an image, such as registry.example/kproxy:0.1.0"
    ),
    "bootstrap-servers": _parse_servers,
    "listen": _parse_listen,
    "config-map": _parse_name,
    "secret": _parse_name,
    "cpu-request": _parse_cpu,
    "cpu-limit": _parse_cpu,
    "memory-request": _parse_memory,
    "memory-limit": _parse_memory,
    "run-as-user": _matching(r"[1-9][0-9]{0,9}|any", "the number of a user that is not root, or any"),
    "readiness": _matching("kafka|kproxy", "kafka or kproxy"),
}
assert set(PARSERS) == {entry.name.replace("_", "-") for entry in fields(Sidecar)}


def wished(defaults: Sidecar, annotations: Mapping[str, str]) -> Sidecar:
    """The sidecar of a pod with these annotations. WishRefused for one that is unknown, or has a wrong value."""
    wishes = {name.removeprefix(PREFIX): text for name, text in annotations.items() if name.startswith(PREFIX)}
    values: dict[str, Any] = {name.replace("-", "_"): _parsed(name, text) for name, text in wishes.items()}
    if "config_map" in values:
        # What the file says shall not be overridden by what is only the webhook's default.
        values = {"bootstrap_servers": None, **values}
    sidecar = replace(defaults, **values)
    if sidecar.bootstrap_servers is None and sidecar.config_map is None:
        raise WishRefused(
            f"no brokers: set the annotation {PREFIX}bootstrap-servers to HOST:PORT,HOST:PORT, or "
            f"{PREFIX}config-map to the name of a ConfigMap with kproxy.yaml"
        )
    check_resources(sidecar)
    return sidecar


def _parsed(name: str, text: str) -> str:
    parse = PARSERS.get(name)
    if parse is None:
        known = sorted(PARSERS)
        raise WishRefused(
            f"annotation {shown(PREFIX + name)}: there is no such annotation; valid: {', '.join(known)}"
            f"{suggest(name[:_SHOWN], known)}"
        )
    try:
        return parse(text.strip())
    except ValueError as error:
        raise WishRefused(f"annotation {PREFIX}{name} = {shown(text)}: {error}") from None


def check_resources(sidecar: Sidecar) -> None:
    """WishRefused if a request is above its limit."""
    limits = (
        ("cpu", sidecar.cpu_request, sidecar.cpu_limit, _cpu),
        ("memory", sidecar.memory_request, sidecar.memory_limit, _bytes),
    )
    for what, request, limit, amount in limits:
        if limit is not None and amount(request) > amount(limit):
            raise WishRefused(
                f"{what}-request = {request} is above {what}-limit = {limit}: lower the one, or raise the other"
            )


def _cpu(text: str) -> Decimal:
    return Decimal(text[:-1]) / 1000 if text.endswith("m") else Decimal(text)


def _bytes(text: str) -> Decimal:
    digits = text.rstrip("kMGTKi")
    return Decimal(digits) * _UNITS[text[len(digits) :]]


def shown(text: str) -> str:
    """A value for a message, on one line and not too long."""
    return ascii(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
