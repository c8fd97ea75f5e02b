"""What a run explores: its rules, each of which can be replaced by one that does not hold, and its sizes."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Final, cast

#: The first of each is kproxy's rule; the others are there to be caught.
RULES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        # a claim is mine if my view, read to the log's end, says so | my nonce stands at the offset answered
        "own": ("view", "nonce"),
        # a claim reserves a block of epochs | the next epoch is announced, and used at once
        "next": ("block", "ongoing"),
        # a client receives what the view says after the decision | what the broker answered
        "tell": ("view", "ack"),
        # PARTITIONS is in the log before data are sent | it is not written | the decision takes its sequence
        "begin": ("awaited", "silent", "reused"),
        # a decision names the copy that counts of each batch that was sent twice | it does not
        "copies": ("named", "open"),
        # a batch refused for good fails the transaction | its sequence goes to the next batch
        "refused": ("abort", "restamp"),
        # a member announces itself under its own producer id, and reads that back | under the owner's | not at all
        "announce": ("own-pid", "owner-sequence", "none"),
        # what precedes a commit with group offsets: they are in the log, then the generation is checked
        "offsets": ("announce-check", "check", "check-announce"),
        # the generation under which the transaction began | the member's newest
        "generation": ("began", "newest"),
        # an OffsetFetch waits while announced offsets are undecided | it does not
        "fetch": ("stable", "any"),
        # DeleteRecords is sent when all chunks are acknowledged | with the snapshot
        "delete": ("acknowledged", "early"),
        # a snapshot states the views of a prefix | its writer's own decision under way is in it, too
        "state": ("prefix", "ahead"),
        # a snapshot is loaded when all of its chunks are there | when one is
        "complete": ("all", "any"),
        # a reader below the log start loads again | continues at the log start
        "below": ("reload", "skip"),
        # a new owner knows from the view what became of its client's transaction | assumes it has ended
        "adopt": ("view", "ended"),
        # claims leave alone what is prepared | abort it
        "claim": ("spare", "abort-prepared"),
        # a part is reported when the log shows it prepared | when the record was sent
        "report": ("shown", "sent"),
        # what is prepared is decided by the present owner | by former owners, too
        "decide": ("owner", "former"),
        # a producer id is rejected that data were met of and the log, read to its end, does not know | as far as it was
        # read | though no data were met | never
        "reject": ("met", "anywhere", "guessed", "never"),
        # a decision of what continues names the former epochs | its own alone
        "former": ("named", "left-out"),
        # of a former epoch what lies below the ends counts that the decision names | everything
        "ends": ("bounded", "open"),
        # a claim continues the transaction of the same client | also for a new producer
        "continues": ("same", "anybody"),
        # group offsets go to the epoch that continues | stay with the former one
        "pending": ("moved", "left"),
        # a snapshot states all | not that epochs are continued | not where the data of former epochs end
        "states": ("all", "no-former", "no-ends"),
        # an instance that knows of nothing open claims before it tells a client that it is aborted | says so at once
        "nothing": ("claimed", "at-once"),
    }
)
#: What can happen only so often in a run.
BUDGETS: Final = (
    "claims",
    "txns",
    "resend",
    "crash",
    "lost",
    "forget_log",
    "forget_data",
    "abort",
    "refuse",
    "snaps",
    "back",
    "rebalance",
    "stray",
    "rejects",
    "moves",
    "inits",
    "expire",
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run."""

    rules: Mapping[str, str]
    instances: int = 1
    partitions: int = 1
    ids: int = 1
    block: int = 2
    #: The largest epoch: after it comes the next generation.
    last_epoch: int = 3
    chunks: int = 1
    #: Whether transactions write batches, have members, move a group's offsets.
    batches: int = 1
    members: int = 0
    group: int = 0
    #: 1: all parts are prepared before they are decided; 2: members' only, and the owner commits its own with theirs.
    prepare: int = 0
    #: Whether a client repeats its EndTxn at another instance when its own has crashed.
    repeat: int = 0
    #: Whether one reader goes from record to record, and lags.
    tail: int = 0
    claims: int = 0
    txns: int = 0
    resend: int = 0
    crash: int = 0
    lost: int = 0
    forget_log: int = 0
    forget_data: int = 0
    abort: int = 0
    refuse: int = 0
    snaps: int = 0
    back: int = 0
    rebalance: int = 0
    #: Data of an id that a log knew which is lost; and how many ids are rejected.
    stray: int = 0
    rejects: int = 0
    #: How often a client goes to another instance in a transaction, new producers take the id, an owner lets it expire.
    moves: int = 0
    inits: int = 0
    expire: int = 0
    #: Whether transactions move a group's offsets, and the group is not checked.
    consumes: int = 0
    #: Whether each EndTxn gives the client its next identity.
    bumps: int = 0

    def is_kproxys(self, rule: str) -> bool:
        """Whether a rule is as kproxy has it."""
        return self.rules[rule] == RULES[rule][0]


def make_run(sizes: str, changes: str = "") -> Run:
    """``sizes`` and ``changes`` as in a scenario: words like ``claims=2`` or ``own=nonce``. KeyError for others."""
    run = Run({rule: choices[0] for rule, choices in RULES.items()})
    names = {field.name for field in fields(Run)}
    for word in f"{sizes} {changes}".split():
        name, _, value = word.partition("=")
        if name in names:
            run = replace(run, **cast("dict[str, Any]", {name: int(value)}))
        else:
            if value not in RULES[name]:
                raise KeyError(word)
            run = replace(run, rules={**run.rules, name: value})
    return run
