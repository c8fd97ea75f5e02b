"""What has to hold in every state. The truth is the view of the whole log, what was deleted included."""

from collections.abc import Iterator
from functools import partial

from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry, encode
from kproxy.txn.verdict import Verdict
from verification.models.transaction_log.broker import arrive
from verification.models.transaction_log.log import Item, Log, body_of, is_known, verdict
from verification.models.transaction_log.protocol import OFFSETS, TOPIC, Protocol
from verification.models.transaction_log.rules import Run
from verification.models.transaction_log.state import State, Told

C, A, U = Verdict.COMMITTED, Verdict.ABORTED, Verdict.UNDECIDED


def broken(run: Run, s: State) -> list[str]:
    """The invariants that do not hold."""
    checks = (
        _told,
        partial(_torn, run),
        _readers,
        _owners,
        _identities,
        partial(_claims, run),
        partial(_groups, run),
        partial(_stable, run),
        _reported,
    )
    return sorted({name for check in checks for name in check(s)})


def _lies(s: State, told: Told) -> bool:
    return s.verdict(told.part) is not (C if told.committed else A)


def _told(s: State) -> Iterator[str]:
    for told in s.told:
        if _lies(s, told):
            if told.again:
                yield "I9 a repeated EndTxn: told of another transaction"
            else:
                yield "I1 told committed, is not" if told.committed else "I2 told aborted, is not"


def _shown(s: State) -> list[tuple[Producer, int, object]]:
    """What readers see: part, data partition, batch; once for each copy."""
    return [
        (part, p, body)
        for p, (batches, _) in enumerate(s.data)
        for offset, (part, sequence, body) in enumerate(batches)
        if s.verdict(part) is C
        and not any(view.is_other_copy(part, (TOPIC, p), sequence, offset) for view in s.log.views)
    ]


def _moved(run: Run, s: State) -> set[tuple[Producer, int, object]]:
    """The group offsets that have moved, in the same form."""
    protocol = Protocol(run)
    return {
        (part, OFFSETS, protocol.offsets_of(record))
        for (part, _), records in (s.log.views[0].unmirrored.items() if run.consumes else ())
        for record in records
        if record.topics
    }


def _decisions(log: Log, what: str, *, counted: bool = False) -> list[tuple[Item, set[Producer]]]:
    """The records of that kind with the parts that they name; ``counted``: those that changed something."""
    found: list[tuple[Item, set[Producer]]] = []
    for at, item in enumerate(log.records):
        body = body_of(item)
        if counted and log.prefixes[at].views is log.prefixes[at + 1].views:
            continue
        if item.what == what and isinstance(body, TransactionDecision):
            found.append((item, {Producer(part.producer_id, part.epoch) for part in body.parts}))
    return found


def _torn(run: Run, s: State) -> Iterator[str]:
    shown = [*_shown(s), *_moved(run, s)]
    commits = _decisions(s.log, "COMMIT", counted=True)
    named = {part for _, parts in commits for part in parts}
    if any(part not in named for part, _, _ in shown):
        yield "I2 shown: data that nobody committed"
    for item, parts in commits:
        given = {s.verdict(part) for part in parts}
        if C not in given:
            continue
        mine = [(p, body) for part, p, body in shown if part in parts]
        if given != {C} or not item.want <= set(mine):
            yield "I3 torn: committed data is missing"
        if len(mine) > len(item.want & set(mine)):
            yield "I7 shown: not acknowledged before the commit, or twice"


def _readers(s: State) -> Iterator[str]:
    log, end = s.log, s.log.end
    known = s.tail.known if s.tail is not None else None
    if known is not None and s.tail is not None and known.views != log.prefixes[s.tail.position].views:
        yield "I3 a live reader shows or skips wrongly"
    memo = ("loads", s.start)
    if memo not in log.memo:
        loaded = [(log.load(s.start, n), log.prefixes[n].views) for n in range(s.start, end + 1)]
        log.memo[memo] = all(views is None or views == truth for views, truth in loaded), loaded[-1][0] is not None
    is_true, is_there = log.memo[memo]
    if not is_true:
        yield "I4 a reader loads what the log did not say"
    if not is_there:
        yield "I4 what the log said is lost"


def _owners(s: State) -> Iterator[str]:
    owners = [
        Producer(a.own.first.producer_id, a.epoch)
        for a in s.actors
        if a.own is not None
        and (a.phase in ("beginning", "tx", "ending", "fencing", "reading") or (a.phase == "own" and a.sequence))
    ]
    if len(set(owners)) < len(owners):
        yield "I5 two owners of one epoch"


def _identities(s: State) -> Iterator[str]:
    if len({identity for identity, _ in s.given}) < len(s.given):
        yield "I11 an identity is given twice"


def _claims(run: Run, s: State) -> Iterator[str]:
    """A fresh instance alone claims every id, three times at most, and rejects whom the log does not know.

    Is everything decided then that is not prepared?
    """
    parts = frozenset(part for batches, _ in s.data for part, _, _ in batches)
    memo = ("claims", s.table, parts, s.rejected)
    if memo not in s.log.memo:
        s.log.memo[memo] = _decides_all(run, s, parts)
    if not s.log.memo[memo]:
        yield "I6 a claim cannot decide everything"


def _decides_all(run: Run, s: State, parts: frozenset[Producer]) -> bool:
    protocol = Protocol(run)
    log, table, number = s.log, s.table, s.number
    for at in list(range(run.ids)) * 3:
        own = protocol.behind(log.views[at], number)
        answer = arrive(table, log.end, own.first, 0)
        table = answer.table
        if answer.is_new:
            log = log.add(Item(encode(Entry(str(at), protocol.claim_record(own))), "CLAIM"))
            number += 1
    prepared = {part for view in log.views for part in view.prepared}
    rejects = bool(run.rejects) and run.rules["reject"] != "never"
    return all(
        part in prepared
        or s._replace(log=log).verdict(part) is not U
        or (rejects and not is_known(log.views, part.producer_id))
        for part in parts
    )


def _groups(run: Run, s: State) -> Iterator[str]:
    if run.group and sum(len(list(epochs)) for view in s.log.views for epochs in view.committed.values()) > 1:
        yield "I8 the input is in two committed transactions"


def _stable(run: Run, s: State) -> Iterator[str]:
    """Of what is continued: else the last stable offset falls, or passes what is undecided."""
    if not run.moves or not s.log.end:
        return
    former = s.log.prefixes[s.log.end - 1].views
    for p, (batches, _) in enumerate(s.data):
        for part, _, _ in batches:
            before, now = verdict(former, part), s.verdict(part)
            if before is not U and now is not before:
                yield "I12 a decision changes"
            is_member = run.members and part.producer_id not in s.log.views[0].generations
            if now is U and not is_member and s.log.views[0].bound((TOPIC, p)) is None:
                yield "I13 undecided data are nowhere announced"


def _reported(s: State) -> Iterator[str]:
    aborted = {part for _, parts in _decisions(s.log, "ABORT") for part in parts}
    for one in s.reported:
        if s.verdict(one.part) is A and one.part not in aborted:
            yield "I10 aborted, though it was reported as prepared"
