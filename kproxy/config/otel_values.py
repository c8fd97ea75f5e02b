"""Values of the options of traces."""

import re
from typing import Final

from kproxy.config.values import Kind, Raw, optional, split_url


def _parse_endpoint(text: str) -> str:
    wanted = "must be http://HOST:PORT or https://HOST:PORT without /v1/traces and without a password, or off"
    url = split_url(text, wanted)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(wanted)
    if url.query or url.fragment or url.path.endswith("/v1/traces"):
        raise ValueError(wanted)
    return text


def _parse_ratio(raw: Raw) -> float:
    text = raw.strip() if isinstance(raw, str) else ""
    if not re.fullmatch(r"0|1|[01]?\.[0-9]{1,9}", text, re.ASCII) or float(text) > 1:
        raise ValueError("must be a number from 0 to 1, such as 0.01")
    return float(text)


OTLP_ENDPOINT: Final = optional("http or https URL, or off", _parse_endpoint, "URL", secret=True)
RATIO: Final = Kind("number, 0 to 1", _parse_ratio, "N")
