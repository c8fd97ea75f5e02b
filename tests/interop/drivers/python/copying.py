"""The settings of a copier's clients, by its job: kafka-python and aiokafka have the same names for them."""

from typing import Any


def common(job: dict[str, Any]) -> dict[str, Any]:
    """Those of its consumer and its producer."""
    return {"bootstrap_servers": job["bootstrap"], "client_id": job["client_id"]}


def consumer(job: dict[str, Any]) -> dict[str, Any]:
    """Those of its consumer."""
    return {
        **common(job),
        "group_id": job["group"],
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": job["session_ms"],
        "heartbeat_interval_ms": 500,
        "max_poll_interval_ms": job["max_poll_ms"],
    }
