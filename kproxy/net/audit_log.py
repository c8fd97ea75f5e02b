"""The log of refusals: one line for each client and thing refused, but not one for each time."""

from typing import Final

import structlog

from kproxy.codec.messages import APIS
from kproxy.proxy.authorization.access import Refusal
from kproxy.proxy.authorization.acl_rules import Subject
from kproxy.proxy.refusal_stats import RefusalStats

log = structlog.get_logger("kproxy.audit")

#: The same refusal is logged once in this time, with how often it was suppressed.
_PERIOD_SECONDS: Final = 60.0
#: Refusals logged in a period; further ones are only counted by the metric, which one line says.
_MOST_LINES: Final = 1_000


class AuditLog:
    """Counts every refusal, and logs those that say something new."""

    def __init__(self, stats: RefusalStats) -> None:
        """None yet."""
        self._stats = stats
        self._began = 0.0
        #: What was refused in this period, and how often.
        self._seen: dict[tuple[Subject, Refusal], int] = {}
        #: How often each refusal of the last period was suppressed.
        self._before: dict[tuple[Subject, Refusal], int] = {}

    def refused(self, subject: Subject, refusal: Refusal, now: float) -> None:
        """Records a refusal at ``now``, in seconds."""
        kind = refusal.operation.value, refusal.resource_type.value
        refusals = self._stats.authorization_refusals
        refusals[kind] = refusals.get(kind, 0) + 1
        if now - self._began >= _PERIOD_SECONDS:
            self._began, self._before, self._seen = now, self._seen, {}
        key = subject, refusal
        suppressed = self._seen.get(key)
        if suppressed is not None:
            self._seen[key] = suppressed + 1
        elif len(self._seen) < _MOST_LINES:
            self._seen[key] = 1
            _tell(subject, refusal, self._before.pop(key, 1) - 1)
            if len(self._seen) == _MOST_LINES:
                log.warning("more refusals than are logged", period_seconds=_PERIOD_SECONDS, lines=_MOST_LINES)


def _tell(subject: Subject, refusal: Refusal, suppressed: int) -> None:
    log.info(
        "refused",
        principal=subject.principal,
        host=subject.host,
        client_id=subject.client_id,
        api=APIS[refusal.api_key][0],
        operation=refusal.operation.value,
        resource_type=refusal.resource_type.value,
        resource_name=refusal.name,
        rule="no rule allows it" if refusal.rule is None else str(refusal.rule),
        suppressed=suppressed,
    )
