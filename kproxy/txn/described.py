"""The control API's description of a transaction, and its JSON: the same for server and client."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

_ONGOING: Final = "Ongoing"


class OwnerId(NamedTuple):
    """The owner of a transactional id: the identity that its initialization returned. A newer one fences it."""

    producer_id: int
    producer_epoch: int


class DescribedPart(NamedTuple):
    """A member of a transaction, or a transaction that was prepared: what waits for one decision of the owner."""

    #: Of the member; empty for what the owner wrote itself.
    name: str
    producer_id: int
    producer_epoch: int
    prepared: bool
    #: When the broker aborts it if it is not decided, in ms since 1970; None: nobody does.
    expires_ms: int | None = None
    #: Under which it was prepared: of an owner's part alone, and only if its driver gave one.
    batch_id: str | None = None


class Outcome(NamedTuple):
    """A decision: commit or abort, why, and when the broker took it (ms since 1970)."""

    committed: bool
    reason: str
    at_ms: int


class Stale(NamedTuple):
    """The age of a description of what the transaction log said before it could not be read any more."""

    #: When the log was read to its end last, in ms since 1970; None: it was not read yet.
    as_of_ms: int | None
    #: Why it cannot be read now.
    reason: str


class Listed(NamedTuple):
    """One transactional id in a list; fields as in ``Described``."""

    transactional_id: str
    state: str
    client_id: str
    producer_id: int
    producer_epoch: int
    started_ms: int | None
    instance_id: str
    #: Of members, or prepared by the owner: they wait for its decision, whatever the state says.
    undecided_parts: int

    @property
    def is_undecided(self) -> bool:
        """Whether readers wait for a decision about it."""
        return self.state == _ONGOING or self.undecided_parts > 0


class Listing(list[Listed]):
    """Transactional ids; ``stale``: None if they are those of now."""

    def __init__(self, rows: Iterable[Listed] = (), stale: Stale | None = None) -> None:
        super().__init__(rows)
        self.stale = stale


class Described(NamedTuple):
    """One transactional id and its transaction."""

    transactional_id: str
    #: As Kafka names it: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, Dead.
    state: str
    client_id: str
    #: As its client knows itself.
    producer_id: int
    producer_epoch: int
    #: When the transaction began, in ms since 1970; None if there is none.
    started_ms: int | None
    timeout_ms: int
    #: Topic and partition.
    partitions: tuple[tuple[str, int], ...]
    #: Consumer groups whose offsets move with it.
    groups: tuple[str, ...]
    parts: tuple[DescribedPart, ...]
    #: The kproxy that owns the id.
    instance_id: str
    last: Outcome | None
    #: Of the latest commits that had one, the oldest first: a commit of one of them changes nothing.
    batch_ids: tuple[str, ...] = ()
    #: None if this is the state of now.
    stale: Stale | None = None
    #: ``broker`` or ``kproxy``: who keeps the data of members that prefer the broker from readers. Of ``initialize``.
    member_home: str | None = None

    @property
    def owner(self) -> OwnerId:
        """The client's identity, for those who act for it."""
        return OwnerId(self.producer_id, self.producer_epoch)

    @property
    def undecided_parts(self) -> int:
        return len(self.parts)


def listed_json(row: Listed) -> dict[str, Any]:
    """A row as the API writes it."""
    return row._asdict()


def listed_from(row: Mapping[str, Any]) -> Listed:
    """``listed_json`` backwards; fields of a newer kproxy are passed over. KeyError or TypeError if it is none."""
    return Listed(**{name: row[name] for name in Listed._fields})


def listing_json(found: Listing) -> dict[str, Any]:
    """A list as the API writes it."""
    return {"transactions": [listed_json(row) for row in found], "stale": _stale_json(found.stale)}


def listing_from(found: Mapping[str, Any]) -> Listing:
    """``listing_json`` backwards; fields of a newer kproxy are passed over. KeyError or TypeError if it is none."""
    return Listing((listed_from(row) for row in found["transactions"]), _stale_from(found))


def _stale_json(stale: Stale | None) -> dict[str, Any] | None:
    return None if stale is None else stale._asdict()


def _stale_from(found: Mapping[str, Any]) -> Stale | None:
    stale = found.get("stale")  # an older kproxy does not say
    return None if stale is None else Stale(**{name: stale[name] for name in Stale._fields})


def described_json(found: Described) -> dict[str, Any]:
    """A transaction as the API writes it."""
    return found._asdict() | {
        "owner": found.owner._asdict(),
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in found.partitions],
        "groups": list(found.groups),
        "parts": [part._asdict() for part in found.parts],
        "last": found.last._asdict() if found.last else None,
        "batch_ids": list(found.batch_ids),
        "stale": _stale_json(found.stale),
    }


#: Fields that an older kproxy does not give.
_LATER: Final = ("batch_ids", "stale", "member_home")


def described_from(found: Mapping[str, Any]) -> Described:
    """``described_json`` backwards; fields of a newer kproxy are passed over. KeyError or TypeError if it is none."""
    last = found["last"]
    plain = {name: found[name] for name in Described._fields if name not in _LATER}
    return Described(
        **plain
        | {
            "partitions": tuple((row["topic"], row["partition"]) for row in found["partitions"]),
            "groups": tuple(found["groups"]),
            "parts": tuple(
                DescribedPart(**{name: row[name] for name in DescribedPart._fields if name in row})
                for row in found["parts"]
            ),
            "last": Outcome(**{name: last[name] for name in Outcome._fields}) if last else None,
            "batch_ids": tuple(found.get("batch_ids", ())),  # an older kproxy does not say
            "stale": _stale_from(found),
            "member_home": found.get("member_home"),
        }
    )
