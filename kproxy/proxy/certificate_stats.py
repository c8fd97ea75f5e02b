"""Until when kproxy's own certificates hold."""

# ruff: noqa: RUF009 - these functions make a dataclasses.field, not a shared mutable default.

from dataclasses import dataclass
from typing import NamedTuple

from kproxy.proxy.metric_fields import gauges


class Validity(NamedTuple):
    """The time in which a certificate holds, in seconds since the epoch."""

    not_before: float
    not_after: float


@dataclass(slots=True)
class CertificateStats:
    """The certificates in use, by the option that names their file."""

    certificate_not_before_timestamp_seconds: dict[str, float] = gauges(
        "Since when kproxy's own certificate holds; of several in a file that which ends first.", "option"
    )
    certificate_not_after_timestamp_seconds: dict[str, float] = gauges(
        "Until when kproxy's own certificate holds.", "option"
    )

    def uses(self, option: str, validity: Validity | None) -> None:
        """Notes the certificate that an option names; None if it can't be told how long it holds."""
        if validity is not None:
            self.certificate_not_before_timestamp_seconds[option] = validity.not_before
            self.certificate_not_after_timestamp_seconds[option] = validity.not_after
