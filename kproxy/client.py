"""A small client of kproxy's control API, for scripts and services that want transactions around what they produce.

    from kproxy.client import ControlClient

    control = ControlClient()  # /run/kproxy/control.sock
    with control.transaction("orders-loader", client_id="loader") as txn:
        producer.send("orders", ...)  # any Kafka client whose client.id is "loader", connected through kproxy
        producer.send("audit", ...)
        producer.flush()  # all must be sent before the end of the block
    # Committed here; an exception within the block aborts, and nothing of it is ever seen.

    control = ControlClient(url="http://127.0.0.1:19645", token_file="/etc/kproxy/token")
    control = ControlClient(url="https://kproxy.example:19645", token_file="/etc/kproxy/token", ca_file="/etc/ca.pem")
    for row in control.list(states=["Ongoing"]):
        print(row.transactional_id, row.started_ms)

Synchronous, on the standard library alone; one connection for each request, so that threads may share a client.
"""

import json
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection, RemoteDisconnected
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote, urlencode, urlsplit
from uuid import uuid4

from kproxy.errors import KproxyError
from kproxy.txn.described import Described, Listed, Listing, OwnerId, Stale, described_from, listing_from

__all__ = [
    "DEFAULT_SOCKET",
    "DEFAULT_TIMEOUT_MS",
    "ControlClient",
    "ControlError",
    "ControlUnreachable",
    "Described",
    "Listed",
    "Listing",
    "OwnerId",
    "Stale",
    "Transaction",
]

DEFAULT_SOCKET: Final = "/run/kproxy/control.sock"
DEFAULT_TIMEOUT_MS: Final = 60_000

_T = TypeVar("_T")

_TRANSACTIONS: Final = "/v1/transactions"
_PORTS: Final = {"http": 80, "https": 443}
_ANSWER_SECONDS: Final = 150.0
_MAX_ANSWER_BYTES: Final = 64 << 20
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0


class ControlError(KproxyError):
    """kproxy's response is an error: ``error`` is Kafka's name of it, ``detail`` says what to do."""

    def __init__(self, status: int, error: str, detail: str, *, retriable: bool) -> None:
        """``status`` is HTTP's; ``retriable``: the same request may succeed a moment later."""
        super().__init__(f"{error}: {detail}")
        self.status = status
        self.error = error
        self.detail = detail
        self.retriable = retriable


class ControlUnreachable(KproxyError):
    """There was no response: nothing listens there, or the connection broke; then what was asked for may be done."""


_Failure: TypeAlias = ControlError | ControlUnreachable


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class ControlClient:
    """Each method is one request; all raise ControlError, and ControlUnreachable where there is no response."""

    def __init__(
        self,
        socket_path: str | Path = DEFAULT_SOCKET,
        *,
        url: str | None = None,
        token_file: str | Path | None = None,
        ca_file: str | Path | None = None,
        timeout: float = _ANSWER_SECONDS,
    ) -> None:
        """``url`` (of control.http) in place of the socket needs the token; ``timeout`` is for one answer, in seconds.

        ``ca_file``: the authority of kproxy's certificate, PEM; by default the system's authorities. OSError if the
        token or that file can't be read, ValueError if the URL is none.
        """
        self._socket_path = str(socket_path)
        self._timeout = timeout
        self._tcp: tuple[str, int] | None = None
        self._tls: ssl.SSLContext | None = None
        if url is not None:
            parts = urlsplit(url)
            if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/"):
                raise ValueError(f"{url!r} must be http://HOST:PORT or https://HOST:PORT")
            self._tcp = parts.hostname, parts.port or _PORTS[parts.scheme]
            if parts.scheme == "https":
                self._tls = ssl.create_default_context(cafile=ca_file)
        self._headers = {"Accept": "application/json"}
        if token_file is not None:
            self._headers["Authorization"] = f"Bearer {Path(token_file).read_text(encoding='ascii').strip()}"

    def begin(
        self,
        *,
        client_id: str | None = None,
        transactional_id: str | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Described:
        """Begins a transaction; at least one name is needed, the id is by default "kproxy-" and the client.id."""
        return self._post(_TRANSACTIONS, client_id=client_id, transactional_id=transactional_id, timeout_ms=timeout_ms)

    def initialize(
        self, transactional_id: str, *, client_id: str = "", timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> Described:
        """Initializes the id: its former owner is fenced, an open transaction is aborted, a prepared one is kept.

        ``Described.owner`` identifies the caller in requests about members and decisions. These are refused after a
        newer owner has initialized the id.
        """
        return self._post(f"{_path(transactional_id)}/initialize", client_id=client_id, timeout_ms=timeout_ms)

    def commit(
        self,
        transactional_id: str,
        *,
        batch_id: str | None = None,
        members: Sequence[str] = (),
        owner: OwnerId | None = None,
        abort_others: bool = False,
    ) -> Described:
        """Commits, and with it all that these members have prepared, at any kproxy.

        ``owner`` or ``batch_id`` is required: a late commit that names neither would decide the next transaction.
        ``owner``: as ``begin`` or ``initialize`` returned it; refused once a newer one has the id. ``batch_id``: the
        commit may be repeated until there is a response. ``abort_others``: all else of the id is aborted. ValueError.
        """
        if owner is None and batch_id is None:
            raise ValueError(f"commit of {transactional_id}: give owner, as begin returned it, or batch_id, or both")
        path = f"{_path(transactional_id)}/commit"
        return self._post(
            path, batch_id=batch_id, members=list(members), owner=owner, abort_others=abort_others or None
        )

    def abort(
        self, transactional_id: str, *, owner: OwnerId, members: Sequence[str] = (), abort_others: bool = False
    ) -> Described:
        """Aborts, and with it what these members, or (``abort_others``) all, have prepared.

        ``owner``: as ``begin``, ``initialize`` or ``describe`` returned it; refused once a newer one has the id.
        """
        path = f"{_path(transactional_id)}/abort"
        return self._post(path, members=list(members), owner=owner, abort_others=abort_others or None)

    def prepare(self, transactional_id: str, *, owner: OwnerId, batch_id: str | None = None) -> Described:
        """Makes it durable: no time-out and no crash decides it, only a later commit or abort; ``owner`` as there.

        ``batch_id``: a commit under another one leaves it out. Give it where several drivers take the id in turn.
        """
        return self._post(f"{_path(transactional_id)}/prepare", owner=owner, batch_id=batch_id)

    def begin_member(
        self,
        transactional_id: str,
        member: str,
        *,
        client_id: str,
        owner: OwnerId | None = None,
        timeout_ms: int | None = None,
        prefer_broker: bool = False,
    ) -> Described:
        """What this client.id writes through this kproxy from now on is the member's part; any kproxy will do.

        A name is used once, so put a UUID in. ``timeout_ms``: by default the id's. ``prefer_broker``: where
        ``transactions.home`` is ``auto``, the part is a transaction of the broker's if the brokers serve them, so that
        ``read_committed`` consumers without kproxy see it only after the commit.
        """
        path = f"{_member(transactional_id, member)}/begin"
        return self._post(
            path, client_id=client_id, owner=owner, timeout_ms=timeout_ms, prefer_broker=prefer_broker or None
        )

    def prepare_member(self, transactional_id: str, member: str, *, records: int | None = None) -> Described:
        """Makes the member's part durable, at the kproxy where it began; it may be repeated.

        ``records``: how many were acknowledged to its producer. TRANSACTION_ABORTABLE if this kproxy received another
        number of them, for example none because the producer is connected to a broker.
        """
        return self._post(f"{_member(transactional_id, member)}/prepare", records=records)

    def abort_member(self, transactional_id: str, member: str) -> Described:
        """Gives the member's part up, at the kproxy where it began."""
        return self._post(f"{_member(transactional_id, member)}/abort")

    def reject(self, producer_id: int) -> int:
        """Has readers pass over what was written under a producer id that the transaction log does not know; the id."""
        return self._ask(lambda row: int(row["producer_id"]), "POST", f"/v1/producers/{producer_id}/reject", {})

    def list(self, states: Sequence[str] = (), *, undecided: bool = False) -> Listing:
        """All transactional ids, or those in one of these states, or that readers wait for (``undecided``).

        ``Listing.stale`` says how old the list is if the transaction log cannot be read now.
        """
        asked = [("state", state) for state in states] + ([("undecided", "true")] if undecided else [])
        query = f"?{urlencode(asked)}" if asked else ""
        return self._ask(listing_from, "GET", _TRANSACTIONS + query)

    def describe(self, transactional_id: str) -> Described:
        return self._ask(described_from, "GET", _path(transactional_id))

    def config(self) -> dict[str, Any]:
        """The configuration in force: ``options``, each with name, value, unit, source and change."""
        return self._ask(dict, "GET", "/v1/config")

    def reload_config(self) -> dict[str, Any]:
        """Has file, environment and flags read again: what was ``applied``, ``restart_needed`` and ``unchanged``."""
        return self._ask(dict, "POST", "/v1/config/reload", {})

    def log_levels(self) -> dict[str, Any]:
        """``level``, and ``overrides``: a list of subsystem and level."""
        return self._ask(dict, "GET", "/v1/logging")

    def set_log_level(self, level: str, subsystem: str | None = None) -> dict[str, Any]:
        """Sets what is logged at least, of one subsystem or of all; ``default``: as the options say. As above."""
        body = {"level": level} | ({} if subsystem is None else {"subsystem": subsystem})
        return self._ask(dict, "PUT", "/v1/logging", body)

    def status(self) -> dict[str, Any]:
        """What this kproxy is doing, in short; fields as docs/openapi.json has them."""
        return self._ask(dict, "GET", "/v1/status")

    def clients(self, client_id: str | None = None) -> dict[str, Any]:
        """``total`` and ``clients``: who is connected, the busiest first; those with this client.id, if it is given."""
        query = f"?{urlencode({'client_id': client_id})}" if client_id is not None else ""
        return self._ask(dict, "GET", f"/v1/clients{query}")

    def lanes(self) -> dict[str, Any]:
        """``total`` and ``lanes``: producer ids and who writes under them, those that wait first."""
        return self._ask(dict, "GET", "/v1/lanes")

    def brokers(self) -> dict[str, Any]:
        """``total`` and ``brokers``."""
        return self._ask(dict, "GET", "/v1/brokers")

    def fleet(self) -> dict[str, Any]:
        """``instances`` that announce themselves on the same brokers, and ``legacy_clients`` of all of them."""
        return self._ask(dict, "GET", "/v1/fleet")

    def transaction(
        self,
        transactional_id: str | None = None,
        *,
        client_id: str | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        batch_id: str | None = None,
        members: Sequence[str] = (),
    ) -> "Transaction":
        """A block: begins at its start, commits at its end, aborts when an exception leaves it."""

        def begin() -> Described:
            return self.begin(client_id=client_id, transactional_id=transactional_id, timeout_ms=timeout_ms)

        return Transaction(self, begin, batch_id or uuid4().hex, members, self._timeout)

    def _post(self, path: str, **body: Any) -> Described:
        """The transaction after a change; fields that are None are not sent."""
        sent = {name: value for name, value in body.items() if value is not None}
        if isinstance(sent.get("owner"), OwnerId):
            sent["owner"] = sent["owner"]._asdict()
        return self._ask(described_from, "POST", path, sent)

    def _ask(self, read: Callable[[Any], _T], method: str, target: str, body: Mapping[str, Any] | None = None) -> _T:
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = self._connection()
        try:
            connection.request(method, target, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            status, raw = answer.status, answer.read(_MAX_ANSWER_BYTES)
        except (OSError, HTTPException) as error:
            raise ControlUnreachable(f"no answer from kproxy at {self._where}: {_why(error)}") from None
        finally:
            connection.close()
        return self._understood(read, status, raw)

    def _connection(self) -> HTTPConnection:
        if self._tcp is None:
            return _UnixConnection(self._socket_path, self._timeout)
        if self._tls is not None:
            return HTTPSConnection(*self._tcp, timeout=self._timeout, context=self._tls)
        return HTTPConnection(*self._tcp, timeout=self._timeout)

    @property
    def _where(self) -> str:
        return self._socket_path if self._tcp is None else f"{self._tcp[0]}:{self._tcp[1]}"

    def _understood(self, read: Callable[[Any], _T], status: int, raw: bytes) -> _T:
        try:
            found = json.loads(raw)
            if status < HTTPStatus.BAD_REQUEST:
                return read(found)
            error = ControlError(status, found["title"], found["detail"], retriable=found["retriable"])
        except (ValueError, KeyError, TypeError):
            raise ControlUnreachable(
                f"{self._where} is not kproxy's control API; give --socket, or --url of control.http "
                "(the port of http serves only status, clients and lanes)"
            ) from None
        raise error


class Transaction:
    """One transaction of a ``with`` block; a decision taken within the block is not taken again at its end."""

    def __init__(
        self,
        client: ControlClient,
        begin: Callable[[], Described],
        batch_id: str,
        members: Sequence[str],
        patience: float,
    ) -> None:
        """``patience`` seconds are spent on brokers that are not ready, and on learning what became of a commit."""
        self._client = client
        self._begin = begin
        self._batch_id = batch_id
        self._members = tuple(members)
        self._patience = patience
        self._decided = False
        self._owner = OwnerId(-1, -1)
        #: Empty before the block begins.
        self.transactional_id = ""

    def commit(self) -> Described:
        """Commits. Repeats the request, which is safe, until the outcome is known or the time-out has expired."""

        def commit() -> Described:
            return self._client.commit(
                self.transactional_id, batch_id=self._batch_id, members=self._members, owner=self._owner
            )

        found = self._patiently(commit, lambda error: isinstance(error, ControlUnreachable) or error.retriable)
        self._decided = True
        return found

    def abort(self) -> Described:
        found = self._client.abort(self.transactional_id, members=self._members, owner=self._owner)
        self._decided = True
        return found

    def prepare(self, batch_id: str | None = None) -> Described:
        """Leaves the decision to a later ``ControlClient.commit`` or ``abort``, by any caller that knows the id.

        ``batch_id``: as of ``ControlClient.prepare``.
        """
        found = self._client.prepare(self.transactional_id, owner=self._owner, batch_id=batch_id)
        self._decided = True
        return found

    def describe(self) -> Described:
        return self._client.describe(self.transactional_id)

    def __enter__(self) -> "Transaction":
        """Begins; asked again while the brokers are not ready for it."""
        found = self._patiently(self._begin, _nothing_was_done)
        self.transactional_id, self._owner = found.transactional_id, found.owner
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commits; after an exception aborts, and the exception propagates."""
        if self._decided:
            return
        if error is None:
            self.commit()
            return
        try:
            self.abort()
        except (ControlError, ControlUnreachable) as failed:
            error.add_note(f"kproxy did not confirm the abort, its time-out will: {failed}")

    def _patiently(self, ask: Callable[[], Described], again: Callable[[_Failure], bool]) -> Described:
        deadline, pause = time.monotonic() + self._patience, _FIRST_PAUSE
        while True:
            try:
                return ask()
            except (ControlError, ControlUnreachable) as error:
                if not again(error) or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)


def _nothing_was_done(error: _Failure) -> bool:
    return isinstance(error, ControlError) and error.status == HTTPStatus.SERVICE_UNAVAILABLE


def _path(transactional_id: str) -> str:
    return f"{_TRANSACTIONS}/{quote(transactional_id, safe='')}"


def _member(transactional_id: str, member: str) -> str:
    return f"{_path(transactional_id)}/members/{quote(member, safe='')}"


def _why(error: Exception) -> str:
    match error:
        case FileNotFoundError():
            return "there is no such socket; is it running with control.socket set to this path?"
        case ConnectionRefusedError():
            return "nothing listens there; is it running, with control.socket or control.http?"
        case PermissionError():
            return "the socket is for the user that kproxy runs as"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not accepted: {error.verify_message}"
        case ssl.SSLError() if error.reason == "WRONG_VERSION_NUMBER":
            return "it speaks no TLS: use http:// in the URL"
        case RemoteDisconnected() | ConnectionResetError():
            return "it closed the connection; a port that speaks TLS does this: is https:// in the URL right?"
        case TimeoutError():
            return "it took too long; whether it was done is open"
    return str(error) or type(error).__name__
