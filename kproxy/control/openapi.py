"""The control API as one table of operations: its routes, and the OpenAPI 3.1 document (docs/openapi.json)."""

from collections.abc import Container
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from starlette.routing import Route

from kproxy.control import config_schemas, fact_schemas, problems, schemas
from kproxy.control.json_schema import Schema

TRANSACTIONS: Final = "/v1/transactions"
VERSION: Final = "1.0.0"

_JSON: Final = "application/json"
_ONE: Final = f"{TRANSACTIONS}/{{transactional_id}}"
_MEMBER: Final = f"{_ONE}/members/{{member}}"
_DESCRIPTION: Final = (
    "Transactions for producers that know nothing of transactions: what a client.id writes through this kproxy between "
    "begin and commit is seen as a whole or not at all by read_committed consumers that read through kproxy. "
    "Served on the Unix socket of control.socket, where the mode of its file says who may connect, and at control.http "
    "where every request needs the token of control.token.file, and without TLS a Host that names the listener. "
    "Requests of browsers (Origin, Sec-Fetch-Site) are refused. Bodies have at most 262,144 bytes."
)


class Operation(NamedTuple):
    """One operation. ``name`` is its id, and the name of the method that serves it."""

    verb: str
    path: str
    name: str
    summary: str
    #: Names of schemas; a body must be sent if ``required``.
    answer: str
    body: str | None = None
    required: bool = False
    status: HTTPStatus = HTTPStatus.OK
    query: tuple[Schema, ...] = ()


def _in_query(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _in_path(name: str, schema: Schema, description: str = "Percent-encoded: a slash is %2F.") -> Schema:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


_STATES: Final = (
    _in_query("state", "Only those in this state, or in one of these.", {"type": "array", "items": schemas.STATE}),
    _in_query(
        "undecided",
        "true: only those that readers wait for, with an open transaction or an undecided part.",
        schemas.UNDECIDED,
    ),
)
_CLIENT_ID: Final = (_in_query("client_id", "Only clients with this client.id.", {"type": "string"}),)
#: By placeholder of a path.
_PARAMETERS: Final[dict[str, Schema]] = {
    "{transactional_id}": {"$ref": "#/components/parameters/TransactionalId"},
    "{member}": {"$ref": "#/components/parameters/Member"},
    "{producer_id}": _in_path("producer_id", {"type": "integer", "minimum": 1}, "As the log of kproxy names it."),
}
_O: Final = Operation
OPERATIONS: Final = (
    _O("get", "/v1/openapi.json", "openapi", "This document.", "Document"),
    _O("get", "/v1/status", "status", "The whole in short.", "Status"),
    _O("get", "/v1/clients", "clients", "Who is connected, the busiest first.", "ClientList", query=_CLIENT_ID),
    _O("get", "/v1/lanes", "lanes", "Producer ids and who writes under them, those that wait first.", "LaneList"),
    _O("get", "/v1/brokers", "brokers", "The brokers, by id.", "BrokerList"),
    _O("get", "/v1/fleet", "fleet", "All instances on the same brokers that announce themselves.", "Fleet"),
    _O("get", TRANSACTIONS, "list", "All transactional ids that the log knows.", "TransactionList", query=_STATES),
    _O("post", TRANSACTIONS, "begin", "Begins a transaction.", "Transaction", "Begin", True, HTTPStatus.CREATED),
    _O("get", _ONE, "describe", "One transactional id and its transaction.", "Transaction"),
    _O(
        "post",
        "/v1/producers/{producer_id}/reject",
        "reject",
        "Readers pass over what was written under a producer id that the log does not know.",
        "Rejected",
        "Reject",
    ),
    _O("post", f"{_ONE}/commit", "commit", "Commits: all is seen from now on.", "Transaction", "Commit", True),
    _O("post", f"{_ONE}/abort", "abort", "Aborts: nothing of it will ever be seen.", "Transaction", "Abort", True),
    _O(
        "post",
        f"{_ONE}/prepare",
        "prepare",
        "Makes it durable: it waits for a decision, however long.",
        "Transaction",
        "Prepare",
        True,
    ),
    _O(
        "post",
        f"{_ONE}/initialize",
        "initialize",
        "Takes the id and fences its former owner.",
        "Transaction",
        "Initialize",
    ),
    _O(
        "post",
        f"{_MEMBER}/begin",
        "begin_member",
        "A client's records are a part of their own, of the open transaction or of the next one.",
        "Transaction",
        "BeginMember",
        True,
    ),
    _O(
        "post",
        f"{_MEMBER}/prepare",
        "prepare_member",
        "Makes the part durable: it waits for a decision, however long.",
        "Transaction",
        "PrepareMember",
    ),
    _O("post", f"{_MEMBER}/abort", "abort_member", "Gives the part up.", "Transaction", "AbortMember"),
    _O("get", "/v1/config", "config", "The configuration in force, and where each value comes from.", "Config"),
    _O(
        "post",
        "/v1/config/reload",
        "reload",
        "Reads file, environment and flags again, and applies what needs no restart.",
        "Reloaded",
        "Reload",
    ),
    _O("get", "/v1/logging", "logging", "The levels of logs.", "Logging"),
    _O(
        "put",
        "/v1/logging",
        "set_level",
        "Sets one, until the options change or kproxy ends.",
        "Logging",
        "SetLevel",
        True,
    ),
)


def routes(api: object, only: Container[str] | None = None) -> list[Route]:
    """The routes of the operations that have a method in ``api``; of those in ``only``, if it is given."""
    return [
        Route(each.path, getattr(api, each.name), methods=[each.verb.upper()])
        for each in OPERATIONS
        if hasattr(api, each.name) and (only is None or each.name in only)
    ]


def document() -> dict[str, Any]:
    """The whole document; it depends on nothing but the code."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "kproxy control API", "version": VERSION, "description": _DESCRIPTION},
        "servers": [
            {"url": "http://localhost", "description": "Over the Unix socket, or with the address of control.http."}
        ],
        "security": [{"token": []}, {}],
        "paths": _paths(),
        "components": {
            "schemas": {
                "Document": {"type": "object", "description": "OpenAPI 3.1."},
                "Begin": schemas.BEGIN,
                "Commit": schemas.COMMIT,
                "Abort": schemas.ABORT,
                "Prepare": schemas.PREPARE,
                "PrepareMember": schemas.PREPARE_MEMBER,
                "AbortMember": schemas.ABORT_MEMBER,
                "Initialize": schemas.INITIALIZE,
                "BeginMember": schemas.BEGIN_MEMBER,
                "Transaction": schemas.DESCRIBED,
                "TransactionList": schemas.LIST,
                "Reject": schemas.REJECT,
                "Rejected": schemas.REJECTED,
                "Config": config_schemas.CONFIG,
                "Reload": config_schemas.RELOAD,
                "Reloaded": config_schemas.RELOADED,
                "SetLevel": config_schemas.SET_LEVEL,
                "Logging": config_schemas.LOGGING,
                "Status": fact_schemas.STATUS,
                "ClientList": fact_schemas.CLIENTS,
                "LaneList": fact_schemas.LANES,
                "BrokerList": fact_schemas.BROKERS,
                "Fleet": fact_schemas.FLEET,
                "Problem": schemas.PROBLEM,
            },
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The content of control.token.file; not needed on the Unix socket.",
                }
            },
            "parameters": {
                "TransactionalId": _in_path("transactional_id", schemas.TRANSACTIONAL_ID),
                "Member": _in_path("member", schemas.MEMBER),
            },
        },
    }


def _paths() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for each in OPERATIONS:
        parameters = [schema for name, schema in _PARAMETERS.items() if name in each.path]
        path = paths.setdefault(each.path, {"parameters": parameters} if parameters else {})
        path[each.verb] = _described(each)
    return paths


def _described(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": operation.name, "summary": operation.summary}
    if operation.query:
        found["parameters"] = list(operation.query)
    if operation.body is not None:
        found["requestBody"] = {"required": operation.required, "content": {_JSON: {"schema": _ref(operation.body)}}}
    done = {"description": "Done.", "content": {_JSON: {"schema": _ref(operation.answer)}}}
    refused = {"description": "Refused.", "content": {problems.MEDIA_TYPE: {"schema": _ref("Problem")}}}
    return found | {"responses": {str(int(operation.status)): done, "default": refused}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
