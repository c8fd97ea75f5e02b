"""Requests and responses of the control API's routes for configuration and logs, as JSON Schema."""

from typing import Final

from kproxy.config import Change
from kproxy.config.log_levels import LEVELS, SUBSYSTEMS
from kproxy.control.json_schema import Schema, an_object, list_of

#: As a level: what the options say.
DEFAULT: Final = "default"

_VALUE: Final[Schema] = {"type": ["boolean", "integer", "string"], "description": "Lists and rules as text."}
_NAME: Final[Schema] = {"type": "string", "description": "Dotted, as in the file."}
_CHANGE: Final[Schema] = {
    "type": "string",
    "enum": [change.value for change in Change],
    "description": "When another value takes effect: with a reload, with one for connections made from then on, or "
    "after a restart.",
}
_LEVEL: Final[Schema] = {"type": "string", "enum": list(LEVELS)}
_SUBSYSTEM: Final[Schema] = {"type": "string", "enum": list(SUBSYSTEMS)}

RELOAD: Final = an_object({}, closed=True)
SET_LEVEL: Final = an_object(
    {
        "subsystem": {**_SUBSYSTEM, "description": "If not given, all that have no level of their own."},
        "level": {"type": "string", "enum": [*LEVELS, DEFAULT], "description": "default: as the options say."},
    },
    required=("level",),
    closed=True,
)


def _object(properties: Schema, description: str) -> Schema:
    return an_object(properties, description, closed=True)


def _rows(properties: Schema, description: str) -> Schema:
    return list_of(_object(properties, description))


_CHANGED: Final = {"name": _NAME, "before": _VALUE, "after": _VALUE, "change": _CHANGE}
CONFIG: Final = _object(
    {
        "options": _rows(
            {
                "name": _NAME,
                "value": _VALUE,
                "unit": {"type": "string"},
                "source": {"type": "string", "description": "The file, the variable or the flag; or default."},
                "change": _CHANGE,
            },
            "An option.",
        )
    },
    "The configuration in force.",
)
RELOADED: Final = _object(
    {
        "applied": _rows(_CHANGED, "In force from now on."),
        "restart_needed": _rows(_CHANGED, "In the sources, and not in force before a restart."),
        "unchanged": list_of(_NAME),
    },
    "What reading the sources again has brought.",
)
LOGGING: Final = _object(
    {
        "level": _LEVEL,
        "overrides": _rows({"subsystem": _SUBSYSTEM, "level": _LEVEL}, "A subsystem with a level of its own."),
        "subsystems": list_of(_SUBSYSTEM, "All that there are."),
    },
    "What is logged, at least.",
)
