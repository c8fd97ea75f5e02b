"""Access to the status page: from its own host with a correct Host header, from other hosts with the token.

The page has no password, so what protects it from web pages of others is what their browsers can't forge: Host, which
names the site whose DNS led here (DNS rebinding), Origin and Sec-Fetch-Site.
"""

import re
from ipaddress import ip_address
from typing import Final, NamedTuple

from starlette.types import Scope

from kproxy.config import Address, Config
from kproxy.control.guard import Refusal, forbidden, values_by_name, without_token

#: For machines, which may have any name for this host; they show nothing that a web page could use.
_FOR_MACHINES: Final = ("/metrics", "/healthz", "/readyz")
_API: Final = "/v1/"
_READS: Final = ("GET", "HEAD")
#: Values of Sec-Fetch-Site: of a request by the page itself, or by a person's hand.
_OWN_SITES: Final = (b"same-origin", b"none")
_PORT: Final = re.compile("[0-9]{1,5}")

Headers = dict[bytes, list[bytes]]


class PageRules(NamedTuple):
    """What the page requires of a request."""

    #: Host names that lead here by the operator's will; addresses and localhost always do.
    names: frozenset[str]
    #: None: the page aborts nothing.
    token: bytes | None
    #: Whether other hosts can reach the page: client ids, hosts and principals are shown to them for the token alone.
    is_open: bool = False


def page_rules(config: Config, token: bytes | None) -> PageRules:
    """The rules of this kproxy's page."""
    named = (config.http, config.advertised_address)
    names = frozenset(address.host.lower() for address in named if address is not None)
    return PageRules(names, token, is_open=config.http is not None and not config.http.is_loopback)


def page_refusal(scope: Scope, rules: PageRules) -> Refusal | None:
    """Why a request is refused; None if it is served."""
    path = scope["path"]
    if path in _FOR_MACHINES:
        return None
    headers = values_by_name(scope["headers"])
    host = _host(headers)
    if host is None or not (_is_address(host) or host.host in rules.names):
        return forbidden("host", "Host must be this host's IP address, localhost, or the name that http has.")
    if not path.startswith(_API):
        return None
    if not _is_own(headers):
        return forbidden("origin", "Only the status page itself may ask this of a browser.")
    if scope["method"] not in _READS:
        return _may_not_change(scope, headers, host, rules)
    return _may_not_read(headers, rules) if rules.is_open and not _is_local(scope, host) else None


def _may_not_read(headers: Headers, rules: PageRules) -> Refusal | None:
    if rules.token is None:
        detail = (
            "From another host this needs control.token.file, whose token a request must bear; or ask over loopback: "
            "kubectl port-forward, ssh -L, or the commands of kproxy on its own host."
        )
        return forbidden("remote", detail)
    return without_token(headers, rules.token)


def abort_ability(scope: Scope, rules: PageRules) -> str:
    """Whether the page that is asked for may have buttons: "token" if so, "remote" or "off" if not."""
    host = _host(values_by_name(scope["headers"]))
    if host is None or not _is_local(scope, host):
        return "remote"
    return "off" if rules.token is None else "token"


def _may_not_change(scope: Scope, headers: Headers, host: Address, rules: PageRules) -> Refusal | None:
    if not _is_local(scope, host):
        return forbidden("remote", "The token travels in plain text, so only over loopback: use kproxy txn abort.")
    if rules.token is None:
        return forbidden("off", "Give control.token.file, whose token such a request must bear; or use kproxy txn.")
    return without_token(headers, rules.token)


def _is_local(scope: Scope, host: Address) -> bool:
    client = scope.get("client")
    return host.is_loopback and client is not None and Address(client[0], 0).is_loopback


def _host(headers: Headers) -> Address | None:
    """The address in Host; None if there is no Host header, or more than one."""
    values = headers.get(b"host", [])
    if len(values) != 1:
        return None
    text = values[0].decode("latin-1").lower()
    name, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        name, port = text, "80"
    return Address(name.strip("[]"), int(port)) if name and _PORT.fullmatch(port) else None


def _is_address(host: Address) -> bool:
    if host.host == "localhost":
        return True
    try:
        ip_address(host.host)
    except ValueError:
        return False
    return True


def _is_own(headers: Headers) -> bool:
    """Whether a request does not come from another site's page."""
    if any(site not in _OWN_SITES for site in headers.get(b"sec-fetch-site", [])):
        return False
    own = b"http://" + headers[b"host"][0].lower()
    return all(origin.lower() == own for origin in headers.get(b"origin", []))
