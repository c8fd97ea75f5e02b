"""The control API as an OpenAPI 3.1 document: served by each kproxy, and docs/openapi.json."""

from http import HTTPStatus
from typing import Any, Final

from kproxy.control import config_schemas, fact_schemas, problems, schemas
from kproxy.control.fact_routes import BROKERS, CLIENT_ID, CLIENTS, LANES, STATUS
from kproxy.control.json_schema import Schema

TRANSACTIONS: Final = "/v1/transactions"
REJECT: Final = "/v1/producers/{producer_id}/reject"
CONFIG: Final = "/v1/config"
RELOAD: Final = f"{CONFIG}/reload"
LOGGING: Final = "/v1/logging"
VERSION: Final = "1.0.0"

_JSON: Final = "application/json"
_ONE: Final = f"{TRANSACTIONS}/{{transactional_id}}"
_DESCRIPTION: Final = (
    "Transactions for producers that know nothing of transactions: what a client.id writes through this kproxy between "
    "begin and commit is seen as a whole or not at all by read_committed consumers that read through kproxy. "
    "Served on the Unix socket of control.socket, where the mode of its file says who may connect, and at control.http "
    "on loopback, where every request needs the token of control.token.file and a Host that names the listener. "
    "Requests of browsers (Origin, Sec-Fetch-Site) are refused. Bodies have at most 262,144 bytes."
)


def document() -> dict[str, Any]:
    """The whole document; it depends on nothing but the code."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "kproxy control API", "version": VERSION, "description": _DESCRIPTION},
        "servers": [
            {"url": "http://localhost", "description": "Over the Unix socket, or with the port of control.http."}
        ],
        "security": [{"token": []}, {}],
        "paths": _paths(),
        "components": {
            "schemas": {
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
                "TransactionalId": {
                    "name": "transactional_id",
                    "in": "path",
                    "required": True,
                    "description": "Percent-encoded: a slash is %2F.",
                    "schema": schemas.TRANSACTIONAL_ID,
                },
                "Member": {
                    "name": "member",
                    "in": "path",
                    "required": True,
                    "description": "Percent-encoded: a slash is %2F.",
                    "schema": schemas.MEMBER,
                },
            },
        },
    }


def _paths() -> dict[str, Any]:
    named = [{"$ref": "#/components/parameters/TransactionalId"}]
    this = {"description": "OpenAPI 3.1.", "content": {_JSON: {"schema": {"type": "object"}}}}
    states = {
        "name": "state",
        "in": "query",
        "description": "Only those in this state, or in one of these.",
        "schema": {"type": "array", "items": schemas.STATE},
    }
    undecided = {
        "name": "undecided",
        "in": "query",
        "description": "true: only those that readers wait for, with an open transaction or an undecided part.",
        "schema": schemas.UNDECIDED,
    }
    return {
        "/v1/openapi.json": {
            "get": {
                "operationId": "openapi",
                "summary": "This document.",
                "responses": {"200": this},
            }
        },
        **_fact_paths(),
        TRANSACTIONS: {
            "get": _operation("list", "All transactional ids that the log knows.", "TransactionList")
            | {"parameters": [states, undecided]},
            "post": _operation(
                "begin", "Begins a transaction.", "Transaction", "Begin", HTTPStatus.CREATED, required=True
            ),
        },
        _ONE: {
            "parameters": named,
            "get": _operation("describe", "One transactional id and its transaction.", "Transaction"),
        },
        REJECT: {
            "parameters": [
                {
                    "name": "producer_id",
                    "in": "path",
                    "required": True,
                    "description": "As the log of kproxy names it.",
                    "schema": {"type": "integer", "minimum": 1},
                }
            ],
            "post": _operation(
                "reject",
                "Readers pass over what was written under a producer id that the log does not know.",
                "Rejected",
                "Reject",
            ),
        },
        f"{_ONE}/commit": {
            "parameters": named,
            "post": _operation("commit", "Commits: all is seen from now on.", "Transaction", "Commit", required=True),
        },
        f"{_ONE}/abort": {
            "parameters": named,
            "post": _operation(
                "abort", "Aborts: nothing of it will ever be seen.", "Transaction", "Abort", required=True
            ),
        },
        f"{_ONE}/prepare": {
            "parameters": named,
            "post": _operation(
                "prepare",
                "Makes it durable: it waits for a decision, however long.",
                "Transaction",
                "Prepare",
                required=True,
            ),
        },
        f"{_ONE}/initialize": {
            "parameters": named,
            "post": _operation("initialize", "Takes the id: who had it is fenced.", "Transaction", "Initialize"),
        },
        **_member_paths(named),
        **_config_paths(),
    }


def _config_paths() -> dict[str, Any]:
    reload = "Reads file, environment and flags again, and applies what needs no restart."
    return {
        CONFIG: {"get": _operation("config", "The configuration in force, and where each value comes from.", "Config")},
        RELOAD: {"post": _operation("reload", reload, "Reloaded", "Reload")},
        LOGGING: {
            "get": _operation("logging", "The levels of logs.", "Logging"),
            "put": _operation(
                "set_level", "Sets one, until the options change or kproxy ends.", "Logging", "SetLevel", required=True
            ),
        },
    }


def _fact_paths() -> dict[str, Any]:
    rows = (
        (STATUS, "status", "The whole in short.", "Status"),
        (CLIENTS, "clients", "Who is connected, the busiest first.", "ClientList"),
        (LANES, "lanes", "Producer ids and who writes under them, those that wait first.", "LaneList"),
        (BROKERS, "brokers", "The brokers, by id.", "BrokerList"),
    )
    paths = {path: {"get": _operation(name, summary, answer)} for path, name, summary, answer in rows}
    client_id = {
        "name": CLIENT_ID,
        "in": "query",
        "schema": {"type": "string"},
        "description": "Only clients with this client.id.",
    }
    paths[CLIENTS]["get"]["parameters"] = [client_id]
    return paths


def _member_paths(named: list[Any]) -> dict[str, Any]:
    named = [*named, {"$ref": "#/components/parameters/Member"}]
    begins = "A client's records are a part of their own, of the open transaction or of the next one."
    return {
        f"{_ONE}/members/{{member}}/{what}": {
            "parameters": named,
            "post": _operation(f"{what}_member", summary, "Transaction", body, required=what == "begin"),
        }
        for what, summary, body in (
            ("begin", begins, "BeginMember"),
            ("prepare", "Makes the part durable: it waits for a decision, however long.", "PrepareMember"),
            ("abort", "Gives the part up.", "AbortMember"),
        )
    }


def _operation(
    name: str,
    summary: str,
    answer: str,
    body: str | None = None,
    status: HTTPStatus = HTTPStatus.OK,
    *,
    required: bool = False,
) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": name, "summary": summary}
    if body is not None:
        operation["requestBody"] = {"required": required, "content": {_JSON: {"schema": _ref(body)}}}
    done = {"description": "Done.", "content": {_JSON: {"schema": _ref(answer)}}}
    refused = {"description": "Refused.", "content": {problems.MEDIA_TYPE: {"schema": _ref("Problem")}}}
    return operation | {"responses": {str(int(status)): done, "default": refused}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
