"""Limits of the operating system that the options need."""

import resource
from typing import Final

#: Open files beside clients: listeners, connections of kproxy's own, logs.
_OTHER_FILES: Final = 1_000
#: Where the system names no limit.
_UNLIMITED: Final = 1 << 30
#: Enough for every operator's page, Prometheus and probes; each takes 10 KB, or 50 KB with TLS.
_MOST_HTTP: Final = 250
_FEWEST_HTTP: Final = 4


def open_files_for(connections: int) -> int:
    """Open files needed for that many clients, each with a connection to a broker."""
    return 2 * connections + _OTHER_FILES


def may_open() -> int:
    """Files that this process may have open at the same time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def kept_files() -> int:
    """Files that no client takes, of those that this process may open: for kproxy's own connections, and the pages."""
    return min(may_open() // 4, _OTHER_FILES)


def clients_for_files() -> int:
    """Clients, each with a connection to a broker, for which there are files."""
    return max((may_open() - kept_files()) // 2, 1)


def http_connections() -> int:
    """The most connections of one HTTP listener: two of these leave half of what is kept to kproxy itself."""
    return max(min(kept_files() // 4, _MOST_HTTP), _FEWEST_HTTP)
