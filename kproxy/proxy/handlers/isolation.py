"""Which clients read committed data only: by their request (Fetch v4, ListOffsets v2 and later), or by option."""

from typing import Final, NamedTuple

from kproxy.proxy.context import Context

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1


class Isolation(NamedTuple):
    """How one request is served."""

    #: What the broker is asked for.
    level: int
    #: Whether kproxy hides what is not committed; else the client does, as far as it is asked to.
    filtered: bool
    #: Whether the request can be forwarded unchanged, as far as this is concerned.
    as_asked: bool


def isolation_of(ctx: Context, asked: int | None) -> Isolation:
    """``asked`` is the request's isolation level; None: its version can't say."""
    chosen = ctx.policy.committed_for(ctx.client.client_id)
    if chosen is None and asked is not None:
        return Isolation(asked, asked == READ_COMMITTED and ctx.services.decisions is not None, True)
    committed = ctx.policy.legacy_committed if chosen is None else chosen
    level = READ_COMMITTED if committed else READ_UNCOMMITTED
    return Isolation(level, committed, not committed and asked in (None, READ_UNCOMMITTED))
