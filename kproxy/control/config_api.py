"""The routes of the control API for configuration and logs."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kproxy.codec.messages import ErrorCode
from kproxy.config import ConfigError
from kproxy.config.log_levels import SUBSYSTEMS
from kproxy.control import config_schemas as schemas
from kproxy.control.control_api import read_body
from kproxy.control.logging import Logs
from kproxy.control.openapi import routes
from kproxy.control.problems import Problem
from kproxy.control.settings import Settings, config_json, reload_json

log = structlog.get_logger("kproxy.control")


def config_routes(settings: Settings, logs: Logs) -> Sequence[Route]:
    """What ``make_api`` serves beside the transactions."""
    return routes(_ConfigApi(settings, logs))


class _ConfigApi:
    """One method for each operation (``kproxy.control.openapi``)."""

    def __init__(self, settings: Settings, logs: Logs) -> None:
        self._settings = settings
        self._logs = logs

    async def config(self, request: Request) -> Response:
        return JSONResponse(config_json(self._settings.loaded))

    async def reload(self, request: Request) -> Response:
        await read_body(request, schemas.RELOAD)
        try:
            return JSONResponse(reload_json(await self._settings.reload()))
        except ConfigError as error:
            detail = f"Nothing has changed. {'; '.join(error.problems)}"
            raise Problem(HTTPStatus.BAD_REQUEST, ErrorCode.INVALID_CONFIG, detail) from None

    async def logging(self, request: Request) -> Response:
        return JSONResponse(_levels_json(self._logs))

    async def set_level(self, request: Request) -> Response:
        body = await read_body(request, schemas.SET_LEVEL)
        level, subsystem = body["level"], body.get("subsystem")
        self._logs.set(None if level == schemas.DEFAULT else level, subsystem)
        log.info("log level set", value=level, of=subsystem or "all")
        return JSONResponse(_levels_json(self._logs))


def _levels_json(logs: Logs) -> dict[str, Any]:
    overrides = [{"subsystem": name, "level": level} for name, level in logs.overrides.items()]
    return {"level": logs.level, "overrides": overrides, "subsystems": list(SUBSYSTEMS)}
