"""What is explored: small worlds, in each of which some rule would be missed."""

from typing import Final, NamedTuple


class Scenario(NamedTuple):
    """A small world, and the rules that are replaced in it, one run for each."""

    name: str
    about: str
    sizes: str
    #: The changes with the invariant that then has to break.
    broken: tuple[tuple[str, str], ...] = ()


def _one(name: str, about: str, sizes: str, *broken: str) -> Scenario:
    """``broken``: ``"changes -> invariant"``."""
    pairs = [text.split(" -> ") for text in broken]
    return Scenario(name, about, sizes, tuple((changes, flaw) for changes, flaw in pairs))


SCENARIOS: Final = (
    _one(
        "first-use",
        "two instances claim an id that nobody has used, each with a producer id of its own",
        "instances=2 claims=2 txns=1",
        "own=nonce begin=silent -> I6",
    ),
    _one(
        "claim-expiry",
        "the log's partition forgets the producer id between two claims of the same block",
        "instances=3 claims=3 txns=1 forget_log=1",
        "own=nonce -> I5",
    ),
    _one(
        "next-epoch",
        "the next transaction takes the next epoch without a claim",
        "instances=2 claims=2 txns=2",
        "next=ongoing block=1 -> I5",
    ),
    _one(
        "ack-rotation",
        "a takeover moves to the next generation, and fences nothing there",
        "instances=2 claims=2 txns=1 block=4",
        "tell=ack -> I1",
    ),
    _one(
        "ack-expiry",
        "the log's partition forgets the producer id after a takeover: the former owner is not fenced",
        "instances=2 claims=2 txns=1 forget_log=1",
        "tell=ack -> I1",
    ),
    _one(
        "seq-reuse",
        "PARTITIONS is given up, and its sequence goes to the decision",
        "claims=1 txns=1",
        "begin=reused tell=ack -> I1",
    ),
    _one(
        "late-expiry",
        "a data partition forgets the producer id, and a copy comes late",
        "claims=1 txns=1 forget_data=1 resend=1",
        "copies=open -> I7",
    ),
    _one(
        "refused",
        "a batch that was sent twice is refused for good, and its copy comes later",
        "claims=1 txns=1 resend=1 refuse=1",
        "refused=restamp -> I3",
    ),
    _one(
        "member-none",
        "members write without a word to the log",
        "instances=3 claims=3 txns=1 members=2 batches=0",
        "announce=none -> I6",
    ),
    _one(
        "member-owner",
        "members announce themselves under the owner's producer id and sequence",
        "instances=2 claims=2 txns=1 members=1 batches=0",
        "announce=owner-sequence tell=ack -> I1",
    ),
    _one(
        "group-check",
        "the generation is checked, then the offsets are decided",
        "instances=3 ids=2 group=1 claims=2 txns=2 rebalance=1",
        "offsets=check -> I8",
    ),
    _one(
        "group-order",
        "the generation is checked before the offsets are announced",
        "instances=3 ids=2 group=1 claims=2 txns=2 rebalance=1",
        "offsets=check-announce -> I8",
    ),
    _one(
        "group-back",
        "the input goes to another member and comes back during the transaction",
        "instances=2 ids=2 group=1 claims=2 txns=2 rebalance=2",
        "generation=newest -> I8",
    ),
    _one(
        "group-fetch",
        "an OffsetFetch is answered while announced offsets are undecided",
        "instances=3 ids=2 group=1 claims=2 txns=2 rebalance=1",
        "fetch=any -> I8",
    ),
    _one(
        "snap-two",
        "two snapshots of different prefixes; records are deleted before one is acknowledged",
        "instances=2 claims=2 txns=1 snaps=2",
        "delete=early -> I4",
    ),
    _one(
        "snap-late",
        "DeleteRecords late and again, a snapshot twice, a replica where nothing was deleted",
        "instances=2 claims=2 txns=1 snaps=2 back=1 lost=1",
    ),
    _one(
        "snap-crash",
        "instances crash while snapshots are written and records deleted",
        "instances=2 claims=3 txns=1 snaps=1 crash=1",
    ),
    _one(
        "snap-chunk",
        "half of a snapshot is there, or one half of it twice",
        "instances=2 claims=2 txns=1 snaps=1 chunks=2 lost=1",
        "complete=any -> I4",
    ),
    _one(
        "snap-load",
        "a reader loads while records are deleted",
        "instances=2 claims=2 txns=1 snaps=2 tail=1",
        "below=skip -> I3",
    ),
    _one(
        "snap-flight",
        "a claim and a commit are in flight; the snapshot's writer believes in its commit already",
        "instances=2 claims=2 txns=1 snaps=1 forget_log=1 resend=1",
        "state=ahead -> I4",
    ),
    _one(
        "end-repeat",
        "an instance crashes in a second transaction, its successor too; the client repeats its EndTxn",
        "instances=2 claims=3 txns=2 crash=2 repeat=1",
        "begin=silent -> I9",
        "adopt=ended -> I9",
    ),
    _one(
        "end-abort",
        "kproxy itself aborts what the client wants committed, and crashes before it says so",
        "instances=2 claims=3 txns=2 crash=1 abort=1 repeat=1",
        "adopt=ended -> I9",
    ),
    _one(
        "prepare",
        "an owner's and a member's part are prepared; the owner of the id then decides both",
        "instances=3 claims=3 txns=2 members=1 prepare=1 abort=1",
        "claim=abort-prepared -> I10",
        "report=sent -> I10",
    ),
    _one(
        "prepare-crash",
        "the same, and the owner crashes, is sent again, or not heard",
        "instances=3 claims=3 txns=2 members=1 prepare=1 crash=1 lost=1",
        "claim=abort-prepared -> I10",
    ),
    _one(
        "prepare-members",
        "members prepare, and their owner commits its own batches with theirs while another claims",
        "instances=3 claims=3 txns=1 members=1 prepare=2 abort=1 block=4",
        "decide=former -> I3",
    ),
    _one(
        "reject",
        "data are met that a lost log knew; somebody rejects their producer id while others claim and commit",
        "instances=2 claims=2 txns=1 stray=1 rejects=1",
        "reject=never -> I6",
        "reject=anywhere -> I1",
        "reject=guessed -> I1",
    ),
    _one(
        "reject-members",
        "a member's producer id is met by somebody who rejects what the log does not know",
        "instances=3 claims=3 txns=1 members=1 batches=0 rejects=1 crash=1",
        "reject=anywhere -> I3",
    ),
    _one(
        "continued",
        "the client goes to another instance in a transaction, while the former one is alive and slow",
        "instances=2 claims=2 txns=1 moves=1",
        "former=left-out -> I3",
        "nothing=at-once -> I2",
    ),
    _one(
        "continued-ends",
        "the partition forgets that it has fenced the former instance, whose data come after that",
        "instances=2 claims=2 txns=1 moves=1 forget_data=1 resend=1",
        "ends=open -> I7",
    ),
    _one(
        "continued-offsets",
        "a group's offsets are in the transaction; it is continued again",
        "instances=2 claims=3 txns=1 moves=2 consumes=1",
        "pending=left -> I3",
    ),
    _one(
        "continued-new",
        "a new producer takes the id, in which a transaction is open",
        "instances=2 claims=2 txns=1 moves=1 inits=1 consumes=1",
        "continues=anybody -> I7",
    ),
    _one(
        "continued-identities",
        "a new producer takes the id while another instance continues the transaction; each EndTxn gives an identity",
        "instances=3 claims=3 txns=2 moves=1 inits=1 consumes=1 bumps=1",
    ),
    _one(
        "continued-snapshots",
        "snapshots of what is continued, and of what was",
        "instances=2 claims=2 txns=1 moves=1 snaps=1",
        "states=no-former -> I4",
        "states=no-ends -> I4",
    ),
    _one(
        "continued-members",
        "a member joins before or after the claim that continues",
        "instances=3 claims=4 txns=1 members=1 moves=1",
    ),
    _one(
        "continued-expiry",
        "the log and a partition forget producer ids, a former claim expires, requests come late and again",
        "instances=2 claims=3 txns=1 moves=1 crash=1 resend=1 forget_log=1 expire=1",
    ),
    _one(
        "continued-2p",
        "two partitions, three claims",
        "instances=2 partitions=2 claims=3 txns=1 moves=2 resend=1 forget_data=1",
    ),
    _one(
        "continued-slow",
        "three instances, two moves, a crash, an abort, lost responses, requests that are sent twice",
        "instances=3 claims=4 txns=2 moves=2 crash=1 abort=1 lost=1 resend=1",
    ),
    _one(
        "continued-rotate",
        "each claim takes a single epoch, and the third the next generation",
        "instances=3 claims=4 txns=2 moves=2 crash=1 block=1 last_epoch=1 forget_log=1",
    ),
    _one(
        "core",
        "takeovers, crashes, lost answers, a claim for each transaction",
        "instances=2 claims=3 txns=2 crash=1 lost=1 abort=1 block=1",
    ),
    _one(
        "all-rotate",
        "two takeovers, of which the second takes the next generation",
        "instances=2 claims=3 txns=2 crash=1 forget_log=1",
    ),
    _one(
        "all-2p",
        "two data partitions",
        "instances=2 partitions=2 claims=2 txns=1 resend=1 crash=1 lost=1 forget_data=1",
    ),
    _one("all-3i", "three instances", "instances=3 claims=3 txns=1 crash=1 forget_log=1"),
    _one(
        "all-members",
        "an owner, two members, a snapshot",
        "instances=3 claims=4 txns=2 members=2 batches=0 crash=1 resend=1 snaps=1",
    ),
    _one(
        "all-offsets",
        "group offsets, and a snapshot of two ids",
        "instances=2 ids=2 group=1 claims=2 txns=2 rebalance=2 snaps=1",
    ),
    _one(
        "all-prepared",
        "prepared parts, a snapshot, a reader that lags, a crash",
        "instances=3 claims=3 txns=2 members=1 prepare=1 crash=1 abort=1 snaps=1 tail=1",
    ),
    _one(
        "all-rejects",
        "an owner, a member, data of a lost log, late requests, a crash, two ids rejected",
        "instances=3 claims=3 txns=1 members=1 resend=1 crash=1 stray=1 rejects=2",
    ),
    _one(
        "all-faults",
        "everything together",
        "instances=2 claims=2 txns=2 resend=1 crash=1 lost=1 abort=1 forget_log=1 snaps=1 tail=1",
    ),
)
