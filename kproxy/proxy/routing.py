"""The brokers of a cluster, and kproxy's address for each of them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final, NamedTuple
from zlib import crc32

from kproxy.codec._generated.api_versions import ApiVersionsResponse
from kproxy.codec.version_choice import VersionRange

#: What the names of kproxy's own topics and transactional ids begin with.
OWN_PREFIX: Final = "__kproxy_"

#: Topics whose names are remembered; about 30 MB.
_MOST_NAMES: Final = 100_000
#: Of a broker's id, an int32.
_MOST_DIGITS: Final = 10
#: By wildcard address the loopback address of the same kind; an empty one is of both kinds.
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class Address(NamedTuple):
    """A host name or IP address (no brackets) and a TCP port; as text an IPv6 host is in brackets.

    An empty host is every address of this one, of IPv4 and IPv6.
    """

    host: str
    port: int

    def __str__(self) -> str:
        """HOST:PORT, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_wildcard(self) -> bool:
        """True for 0.0.0.0, [::] and no host, which can be listened on but not connected to."""
        return self.host in _WILDCARDS

    @property
    def on_this_host(self) -> "Address":
        """Where a process of the same host connects to: the loopback address in place of a wildcard."""
        return Address(_WILDCARDS.get(self.host, self.host), self.port)

    @property
    def is_loopback(self) -> bool:
        """True for 127.0.0.0/8, [::1] and localhost: nobody else can connect to it."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(slots=True)
class Broker:
    """One broker: where it is, what it serves, and kproxy's port for it."""

    node_id: int
    address: Address
    port: int | None = None
    #: Advertised versions by API key, first and last; None until asked, and again after each lost connection.
    versions: dict[int, VersionRange] | None = None
    #: As Metadata names it; None: it has none.
    rack: str | None = None
    #: The release that it is most like, and its finalized features, as they were last seen; for people.
    release: str | None = None
    features: dict[str, int] = field(default_factory=dict)
    #: What failed towards it: how often, and what last and when (seconds since the epoch).
    errors: int = 0
    last_error: tuple[str, float] | None = None
    #: Since when Metadata names it no more, in seconds since the epoch; None: the last response named it.
    missing_since: float | None = None
    #: Its whole response to ApiVersions, as old as ``versions``.
    said: ApiVersionsResponse | None = None


@dataclass(slots=True)
class ClusterMap:
    """What is known of the cluster. Changed by the shell's cluster task only; sessions read it."""

    brokers: dict[int, Broker] = field(default_factory=dict)
    #: The brokers that the last response to the shell named: those that are up.
    members: set[int] = field(default_factory=set)
    #: The address that clients are given; None: the address that they connected to.
    advertised_host: str | None = None
    #: Advertised port minus bound port, the same for all listeners.
    port_shift: int = 0
    #: Where one port serves all brokers: the name of each, with {id} for its id.
    host_pattern: str | None = None
    #: The port of these names; None: the one that is listened on.
    one_port: int | None = None
    #: Ids of kproxy's own topics that any client received: Produce v13 and later name topics by id (KIP-516).
    own_topic_ids: set[bytes] = field(default_factory=set)
    #: Names of topics by their ids, as far as a Metadata response gave them; and the other way round.
    topic_names: dict[bytes, str] = field(default_factory=dict)
    _topic_ids: dict[str, bytes] = field(default_factory=dict)
    #: Until then no response to Metadata waits for a topic to appear: the last one waited in vain. In seconds since the
    #: epoch.
    creates_no_topic_until: float = 0.0

    def learn_name(self, topic_id: bytes, name: str) -> None:
        """Records a topic's name, if it has an id at all (KIP-516).

        A topic that has another id now was deleted and created again: what names it by its former id is about another
        topic.
        """
        if name and any(topic_id) and topic_id not in self.topic_names:
            if len(self.topic_names) >= _MOST_NAMES:
                self.topic_names.clear()
                self._topic_ids.clear()
            self.topic_names.pop(self._topic_ids.get(name, b""), None)
            self.topic_names[topic_id] = name
            self._topic_ids[name] = topic_id

    def unknown(self, seen: Iterable[tuple[int, str, int]]) -> list[tuple[int, Address]]:
        """Those of ``seen`` (node id, host, port) that are new, have moved, or have no port of kproxy yet."""
        news = []
        for node_id, host, port in seen:
            known = self.brokers.get(node_id)
            if known is None or known.port is None or known.address != (host, port):
                news.append((node_id, Address(host, port)))
        return news

    def coordinator(self, transactional_id: str) -> int:
        """The broker whose port serves as the coordinator of an id that kproxy coordinates: constant while it is up; or
        -1.

        Otherwise clients that repeat the request (kafkajs) would have many connections to their coordinator.
        """
        ports = [node_id for node_id in self.members if self.brokers[node_id].port is not None]
        return max(ports, key=lambda node_id: (crc32(f"{transactional_id}/{node_id}".encode()), node_id), default=-1)

    def advertised(self, node_id: int, local_host: str) -> Address | None:
        """The address under which a client that reached kproxy at ``local_host`` finds a broker; None: not served."""
        broker = self.brokers.get(node_id)
        if broker is None or broker.port is None:
            return None
        if self.host_pattern is not None:
            return Address(self.host_pattern.replace("{id}", str(node_id)), self.one_port or broker.port)
        return Address(self.advertised_host or local_host, broker.port + self.port_shift)

    def meant(self, server_name: str | None) -> int | None:
        """The id of the broker that a client asked for by name (``host_pattern``); None: any will do."""
        if self.host_pattern is None or server_name is None:
            return None
        front, _, back = self.host_pattern.partition("{id}")
        name = server_name.lower()
        digits = name.removeprefix(front).removesuffix(back)
        whole = name == f"{front}{digits}{back}" and digits.isascii() and digits.isdigit()
        return int(digits) if whole and len(digits) <= _MOST_DIGITS else None


def is_own_topic(name: str) -> bool:
    """Whether a topic is kproxy's own: clients may read it, not write."""
    return is_own_name(name)


def is_own_name(name: str) -> bool:
    """Whether a topic or a transactional id is kproxy's own: clients may not write under it."""
    return name.startswith(OWN_PREFIX)


def preferred_ports(first: int, last: int, node_id: int) -> list[int]:
    """All ports of a range in the order in which to try them for a broker.

    It begins at a place that the node id decides, so that a restarted kproxy gives each broker the same port as before.
    """
    size = last - first + 1
    return [first + (node_id + step) % size for step in range(size)]
