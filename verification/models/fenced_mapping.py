"""Explicit-state model: a client of ``broker-fenced`` continues after a restart of its kproxy.

The broker's coordinator knows the client by an epoch that rises with each transaction; the client keeps its own. kproxy
records which epoch stands for the client in a durable log, and after a restart continues in its name. The broker
judges whether nobody else has had the id since (KIP-360). The record may be old, and what a killed kproxy has sent
may still arrive.

``python -m verification.models.fenced_mapping`` explores every interleaving: once with the rules, and once with each
rule replaced by one that must fail. The exit status is the number of surprises.

One client that writes two records in each of its transactions, and repeats what it has no response to; another producer
that takes the id at the broker itself, commits, and goes; a kproxy that is killed; a log that is too slow, or takes
late what a killed kproxy wrote; a broker that ends what takes too long. The coordinator is that of
``transaction.version`` 2, or of 1, where ends keep the epoch and kproxy asks for the next one before each transaction,
as ``kproxy.testing.fake_broker.transactional_ids`` has it. Not modelled: rotation of the producer id, a second kproxy
of the same instance.id, group offsets.
"""

import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from verification.models.scenario_runs import run_scenarios
from verification.models.search import Search, Trace

EMPTY, ONGOING, COMMITTED, ABORTED = "empty", "ongoing", "committed", "aborted"
#: Aborted by kproxy itself, or it cannot be known: the client has to be told.
LOST: Final = "lost"
#: In the place of a value: kproxy has no response to the first commit, and sends it again.
_REPEATED: Final = "again"


class Rules(NamedTuple):
    """What kproxy does; each other value is a flaw that the search has to find."""

    #: In whose name it continues: the epoch of the ``record``, or the one that the ``broker`` has now.
    names: str = "record"
    #: When an epoch is in the log: before its first ``data`` are sent, or before its ``end``.
    records: str = "data"
    #: What becomes of a transaction that was open: the client is ``told`` that it is aborted, or it is ``ignored``.
    open: str = "told"
    #: How an open transaction is found to have ended: it is aborted, and the ``answer`` tells; or it is ``described``.
    outcome: str = "answer"
    #: The client hears of the outcome once the broker has ``granted`` the next epoch, or ``before``.
    tells: str = "granted"
    #: Whether the epoch after the abort is ``recorded`` before the next one is asked for, or ``not``.
    between: str = "recorded"
    #: What is aborted: what is ``open``, or ``always``, to be sure.
    aborts: str = "open"
    #: What an abort since the record means: something may be ``lost``, or ``nothing``.
    since: str = "lost"
    #: Where ends keep the epoch, what an abort without a record of it means: as ``since``.
    unrecorded: str = "lost"
    #: A successor asks for ``two`` epochs, one after the other, or for ``one``.
    renews: str = "two"
    #: A successor asks for nothing before the ``outcome`` is in the log, or it continues without, as with ``data``.
    awaits: str = "outcome"
    #: Whose an open transaction is whose epoch is not the recorded one: of ``another`` producer, or the ``client``'s.
    others: str = "another"
    #: What a fence says of a commit that kproxy has repeated: it is ``open``, and the client asks; or ``aborted``.
    fence: str = "open"


class Broker(NamedTuple):
    """The coordinator, and the partition."""

    epoch: int = 0
    last: int = -1
    state: str = EMPTY
    foreign: int = 1 << 15
    """The epoch that another producer has received."""
    data: tuple[tuple[str, int], ...] = ()
    """Value and epoch of each record."""
    ended: tuple[tuple[int, bool], ...] = ()
    """The transactions that have ended, by their epochs: whether they are committed."""


class World(NamedTuple):
    """All that there is."""

    broker: Broker = Broker()
    #: Requests in flight to the broker: kind, epoch, value, life of the kproxy that waits.
    network: tuple[tuple[str, int, str, int], ...] = ()
    #: What the log has for the client: its epoch, and how the transaction before it ended.
    record: tuple[int, str] = (0, "")
    #: kproxy: how often it was started, its epoch for the client (-1: not known yet), and what it does.
    life: int = 0
    epoch: int = 0
    #: Records that are acknowledged in the open transaction.
    has: tuple[str, ...] = ()
    adopts: str = ""
    """The step of taking the client over after a restart; empty: it is done."""
    seen: str = ""
    """What the coordinator said of the transaction then."""
    last: str = ""
    """How the last transaction ended, as far as kproxy knows."""
    doomed: bool = False
    busy: bool = False
    #: The client: the transaction that it is in, the step (0, 1: records, 2: commit, 3: abort), and whether it ended.
    txn: int = 0
    step: int = 0
    told: tuple[tuple[int, str], ...] = ()
    asked: int = 0
    """How often it has asked for the commit; more than twice is twice."""
    fenced: bool = False
    kills: int = 0
    takes: int = 0
    harmed: bool = False
    """What costs the client its producer though nobody else has the id.

    An InitProducerId of a killed kproxy came late, and aborted what was open; or the broker did, after its time; or the
    log was too slow, or has what a killed kproxy wrote after what its successor did.
    """
    skips: int = 0
    """How often the log was too slow."""
    overdue: int = 0
    """How often the broker has ended what took too long."""
    unheard: int = 0
    """How often a response to a commit was lost."""


class Sizes(NamedTuple):
    """Of a scenario."""

    txns: int = 2
    kills: int = 2
    takes: int = 0
    #: Of ``transaction.version``.
    level: int = 2
    #: Whether the log may take late what a killed kproxy wrote.
    late: bool = False
    skips: int = 0
    overdue: int = 0
    unheard: int = 0


def end_and_keep(broker: Broker, epoch: int, committed: bool) -> tuple[str, Broker]:
    """EndTxn v4, which keeps the epoch: the response, and the broker after it."""
    wanted = COMMITTED if committed else ABORTED
    if epoch != broker.epoch:
        return "fenced", broker
    if broker.state != ONGOING:
        return ("ok" if broker.state == wanted else "other"), broker
    return "ok", broker._replace(state=wanted, ended=(*broker.ended, (epoch, committed)))


def time_out(broker: Broker) -> Broker:
    """The broker aborts what is open, and raises the epoch."""
    ended = (*broker.ended, (broker.epoch, False))
    return broker._replace(epoch=broker.epoch + 1, last=broker.epoch, state=ABORTED, ended=ended)


def end(broker: Broker, epoch: int, committed: bool) -> tuple[str, Broker]:
    """EndTxn v5: the response, and the broker after it."""
    wanted = COMMITTED if committed else ABORTED
    if epoch == broker.epoch - 1 and broker.state in (COMMITTED, ABORTED):
        return ("ok" if broker.state == wanted else "other"), broker
    if epoch != broker.epoch:
        return "fenced", broker
    if committed and broker.state != ONGOING:
        return "other", broker
    ended = (*broker.ended, (epoch, committed))
    return "ok", broker._replace(epoch=epoch + 1, last=epoch, state=wanted, ended=ended)


def init(broker: Broker, named: int) -> tuple[str, Broker]:
    """InitProducerId in the name of an epoch, asked until what is open is aborted."""
    if broker.state == ONGOING:
        broker = time_out(broker)
    if named == broker.epoch:
        return "ok", broker._replace(epoch=named + 1, last=named, state=EMPTY)
    if named == broker.last:
        return "ok", broker._replace(state=EMPTY)
    return "fenced", broker


def produce(broker: Broker, epoch: int, value: str) -> tuple[str, Broker]:
    """The partition's leader verifies the producer with its coordinator; a repeated batch is known by its sequence."""
    if epoch != broker.epoch:
        return "fenced", broker
    if (value, epoch) in broker.data:
        return "ok", broker
    return "ok", broker._replace(state=ONGOING, data=(*broker.data, (value, epoch)))


def take_over(broker: Broker) -> Broker:
    """Another producer gets the id, writes and commits in the first protocol: its epoch stays."""
    if broker.state == ONGOING:
        broker = broker._replace(ended=(*broker.ended, (broker.epoch, False)), epoch=broker.epoch + 1)
    return broker._replace(epoch=broker.epoch + 1, last=-1, state=COMMITTED, foreign=broker.epoch + 1)


class Model:
    """What can happen next, by the rules."""

    def __init__(self, rules: Rules, sizes: Sizes) -> None:
        self._rules = rules
        self._sizes = sizes
        self._raises = sizes.level > 1
        self._renewal = "renew" if rules.renews == "one" else "first"
        self._after_outcome = "noted" if rules.between == "recorded" else self._renewal
        self._end = end if self._raises else end_and_keep

    def step(self, w: World) -> Iterator[tuple[str, World]]:
        if w.kills < self._sizes.kills:
            lost = w._replace(
                life=w.life + 1, epoch=-1, has=(), adopts="look", seen="", last="", doomed=False, busy=False
            )
            yield "kproxy is killed", lost._replace(kills=w.kills + 1)
            if self._sizes.late and w.adopts in ("record", "noted", "between", "ended"):
                late = ("log", w.epoch, self._written(w), w.life)
                network = tuple(sorted({*w.network, late}))
                yield "kproxy is killed while it writes", lost._replace(kills=w.kills + 1, network=network)
        if w.overdue < self._sizes.overdue and w.broker.state == ONGOING and w.broker.epoch < w.broker.foreign:
            ended = w._replace(broker=time_out(w.broker), overdue=w.overdue + 1, harmed=True)
            yield "the broker aborts what takes too long", ended
        if w.takes < self._sizes.takes:
            yield "another producer takes the id", w._replace(broker=take_over(w.broker), takes=w.takes + 1)
        for message in w.network:
            yield from self._arrives(w, message)
        if w.fenced or w.txn >= self._sizes.txns or w.busy:
            return
        yield from self._adopt(w) if w.adopts else self._serve(w)

    def _send(self, w: World, kind: str, epoch: int, value: str = "") -> World:
        return w._replace(network=tuple(sorted({*w.network, (kind, epoch, value, w.life)})), busy=True)

    def _arrives(self, w: World, message: tuple[str, int, str, int]) -> Iterator[tuple[str, World]]:
        kind, epoch, value, life = message
        after = w._replace(network=tuple(one for one in w.network if one != message))
        if kind == "log":
            yield f"late, the log has {epoch}, {value}", after._replace(record=(epoch, value), harmed=True)
            return
        if kind == "produce":
            answer, broker = produce(w.broker, epoch, value)
        elif kind == "init":
            answer, broker = init(w.broker, epoch)
        else:
            answer, broker = self._end(w.broker, epoch, kind == "commit")
        after = after._replace(broker=broker)
        name = f"the broker has {kind} of {epoch} {value}: {answer}"
        if life != w.life:
            harmed = w.harmed or (kind == "init" and w.broker.state == ONGOING)
            yield f"late, {name}", after._replace(harmed=harmed)
            return
        yield name, self._heard(after._replace(busy=False), kind, epoch, value, answer)
        if kind == "commit" and w.unheard < self._sizes.unheard:
            again = self._send(after, kind, epoch, _REPEATED)
            yield f"{name}, and kproxy repeats it", again._replace(unheard=w.unheard + 1)

    def _heard(self, w: World, kind: str, epoch: int, value: str, answer: str) -> World:
        """kproxy has a response."""
        if w.adopts:
            return self._heard_of_former(w, kind, epoch, answer)
        if answer == "fenced":
            if kind == "commit" and value == _REPEATED and self._rules.fence == "open":
                return w
            is_definite = kind == "commit" and w.asked == 1  # else it says nothing of the first that the client sent
            return w._replace(fenced=True, told=(*w.told, (w.txn, ABORTED)) if is_definite else w.told)
        if kind == "produce":
            return w._replace(has=(*w.has, value), step=w.step + 1)
        if kind in ("commit", "abort") and answer == "ok":
            after = self._ended(w, committed=kind == "commit")._replace(has=())
            if not self._raises:
                # what is committed has been answered before the next epoch is asked for, and needs no record
                return after._replace(adopts="renew" if kind == "commit" else "ended", seen="")
            # a kill may come before the record of the next epoch, which its first data wait for
            return after._replace(epoch=w.epoch + 1, adopts="record" if self._rules.records == "data" else "")
        return w._replace(fenced=True)

    def _ended(self, w: World, *, committed: bool) -> World:
        how = COMMITTED if committed else ABORTED
        return w._replace(told=(*w.told, (w.txn, how)), txn=w.txn + 1, step=0, asked=0, doomed=False, last=how)

    def _serve(self, w: World) -> Iterator[tuple[str, World]]:
        """The client's next request."""
        if w.step < 2:
            if w.doomed:
                yield "the client hears that it has to abort", w._replace(step=3)
                return
            yield f"the client writes {w.txn}.{w.step}", self._send(w, "produce", w.epoch, f"{w.txn}.{w.step}")
        elif w.step == 2:
            if w.has:
                before = w._replace(record=(w.epoch, w.last)) if self._rules.records == "end" else w
                asked = before._replace(asked=min(w.asked + 1, 2))
                yield f"the client commits {w.txn}", self._send(asked, "commit", w.epoch)
            elif w.last == COMMITTED and not w.doomed:
                yield f"the client repeats its commit of {w.txn}", self._ended(w, committed=True)
            else:
                yield "the client hears that it has to abort", w._replace(step=3)
        elif w.has:
            yield f"the client aborts {w.txn}", self._send(w, "abort", w.epoch)
        else:
            yield f"the client aborts {w.txn}, of which nothing is left", self._ended(w, committed=False)

    def _adopt(self, w: World) -> Iterator[tuple[str, World]]:
        """Steps of a kproxy that finds the client in the log."""
        if w.skips < self._sizes.skips and (w.adopts in ("record", "ended") or self._goes_on(w)):
            then = {"record": "", "noted": self._renewal}.get(w.adopts, "renew")
            yield "the log is too slow", w._replace(adopts=then, skips=w.skips + 1, harmed=True)
        if w.adopts == "record":
            record = w.epoch, self._written(w)
            yield f"the log has {record}", w._replace(record=record, adopts="")
        elif w.adopts == "ended":
            yield f"the log has {w.epoch}, aborted", w._replace(record=(w.epoch, ABORTED), adopts="renew")
        elif w.adopts == "look":
            named = w.record[0] if self._rules.names == "record" else w.broker.epoch
            if w.broker.state == ONGOING and w.broker.epoch != named and self._rules.others == "another":
                yield "kproxy learns that another producer has the id", w._replace(fenced=True)
                return
            seen = self._outcome(w.broker.state, w.record[1], is_since=w.broker.epoch != named)
            asked = w._replace(epoch=named, seen=seen)
            if self._rules.tells == "before" and w.broker.state != ONGOING:
                asked = self._concluded(asked)
            is_open = w.broker.state == ONGOING or self._rules.aborts == "always"
            step = "abort" if is_open and self._rules.outcome == "answer" else self._after_outcome
            yield f"kproxy learns of {w.broker.state} at {w.broker.epoch}: {seen}", asked._replace(adopts=step)
        elif w.adopts == "abort":
            yield "kproxy aborts what may be open", self._send(w, "abort", w.epoch)
        elif w.adopts in ("noted", "between"):
            then = self._renewal if w.adopts == "noted" else "renew"
            yield f"the log has {w.epoch}, {w.seen}", w._replace(record=(w.epoch, self._written(w)), adopts=then)
        else:
            yield "kproxy asks for the next epoch", self._send(w, "init", w.epoch)

    def _goes_on(self, w: World) -> bool:
        return w.adopts in ("noted", "between") and self._rules.awaits == "data"

    def _written(self, w: World) -> str:
        """What is recorded beside the epoch: how the last transaction ended.

        Where ends keep the epoch an abort is recorded only beside the epoch that it ended: beside the next one it could
        be taken for that one's.
        """
        if w.adopts == "ended":
            return ABORTED
        if w.adopts in ("noted", "between"):
            return w.seen
        return "" if w.last == ABORTED and not self._raises else w.last

    def _heard_of_former(self, w: World, kind: str, epoch: int, answer: str) -> World:
        if answer == "fenced" and kind == "init":
            return w._replace(fenced=True)
        if kind == "abort":
            # "other": it was committed, and the epoch has risen by that
            seen = COMMITTED if answer == "other" else w.seen
            after = w._replace(seen=seen, epoch=epoch + 1 if answer == "ok" and self._raises else epoch)
            if self._rules.tells == "before":
                after = self._concluded(after)
            return after._replace(adopts=self._after_outcome)
        # the next epoch is granted: nobody else has had the id since
        if w.adopts == "first":
            return w._replace(epoch=w.broker.epoch, adopts="between")
        after = w._replace(epoch=w.broker.epoch, adopts="record")
        return after if self._rules.tells == "before" else self._concluded(after)

    def _concluded(self, w: World) -> World:
        """What the client will hear of its transaction."""
        if not w.seen and not self._raises:
            return w  # the client has heard of it before
        after = w._replace(last=w.seen, doomed=w.seen == LOST and self._rules.open == "told")
        if self._rules.tells == "before" and w.seen == COMMITTED and w.step == 2:
            return self._ended(after, committed=True)
        return after

    def _outcome(self, state: str, noted: str, *, is_since: bool) -> str:
        """How the client's last transaction ended; ``is_since``: the epoch has risen since the record."""
        if state == COMMITTED or (state == ONGOING and self._rules.open == "told"):
            return COMMITTED if state == COMMITTED else LOST
        if is_since and self._rules.since == "lost" and not (state == EMPTY and noted):
            return LOST
        if state == ABORTED and not self._raises and noted != ABORTED and self._rules.unrecorded == "lost":
            return LOST
        return noted or (ABORTED if state == ABORTED else "")


def broken(w: World, sizes: Sizes) -> Iterator[str]:
    """The invariants that do not hold."""
    decided = dict(w.broker.ended)
    shown = [value for value, epoch in w.broker.data if decided.get(epoch)]
    told = dict(w.told)
    for txn in range(sizes.txns):
        values = [f"{txn}.{nth}" for nth in range(2)]
        counts = [shown.count(value) for value in values]
        if told.get(txn) == COMMITTED and counts != [1, 1]:
            yield "F1: a client was answered a commit, and its records are not there once"
        if told.get(txn) == ABORTED and any(counts):
            yield "F2: a client was answered an abort, and its records are there"
        if len(set(counts)) > 1 or max(counts) > 1:
            yield "F3: a transaction is torn or doubled"
    if any(epoch >= w.broker.foreign for _, epoch in w.broker.data):
        yield "F4: a former producer writes after another took the id"
    if w.fenced and not (w.takes or w.harmed):
        yield "F5: a restart costs the client its producer"


class Scenario(NamedTuple):
    """What is explored, and what must be found: the beginning of an invariant's name, or nothing."""

    name: str
    sizes: Sizes
    rules: Rules = Rules()
    flaw: str | None = None


RESTARTS: Final = Sizes()
TAKEN: Final = Sizes(takes=1)
SLOW: Final = Sizes(takes=1, late=True, skips=1)
SLOW_1: Final = SLOW._replace(level=1)
LARGE: Final = Sizes(txns=3, kills=3, takes=1)
SCENARIOS: Final = (
    Scenario("restarts", RESTARTS),
    Scenario("another producer", TAKEN),
    Scenario("three transactions, three restarts, another producer", LARGE),
    Scenario("five restarts", Sizes(kills=5)),
    Scenario("a slow log, late records", SLOW),
    Scenario("what takes too long", Sizes(takes=1, overdue=1)),
    Scenario("a commit is repeated", Sizes(takes=1, overdue=1, unheard=2)),
    Scenario("ends keep the epoch", Sizes(level=1)),
    Scenario("ends keep the epoch, another producer", Sizes(level=1, takes=1)),
    Scenario("ends keep the epoch, a slow log, late records", SLOW_1),
    Scenario("ends keep the epoch, what takes too long", Sizes(level=1, takes=1, overdue=1)),
    Scenario("ends keep the epoch, three of each", Sizes(level=1, txns=3, kills=3, takes=1)),
    Scenario("ends keep the epoch, a commit is repeated", Sizes(level=1, takes=1, overdue=1, unheard=2)),
    Scenario("ends keep the epoch, an abort that the log lacks", Sizes(level=1), Rules(unrecorded="nothing"), "F"),
    Scenario("one epoch for a successor", SLOW, Rules(renews="one"), "F"),
    Scenario("ends keep the epoch, one epoch for a successor", Sizes(level=1, kills=3), Rules(renews="one"), "F2"),
    Scenario("ends keep the epoch, what another has open is the client's", SLOW_1, Rules(others="client"), "F2"),
    Scenario("no wait for a slow log", Sizes(skips=1), Rules(awaits="data"), "F2"),
    Scenario("ends keep the epoch, no wait for a slow log", Sizes(level=1, skips=1), Rules(awaits="data"), "F"),
    Scenario("in the name of the broker's epoch", TAKEN, Rules(names="broker"), "F4"),
    Scenario("an epoch is recorded before its end only", RESTARTS, Rules(records="end"), "F5"),
    Scenario("what was open is ignored", RESTARTS, Rules(open="ignored"), "F"),
    Scenario("what was open is described", RESTARTS, Rules(outcome="described"), "F"),
    Scenario("the outcome is answered before the epoch is granted", TAKEN, Rules(tells="before"), "F1"),
    Scenario("two steps between two records", RESTARTS, Rules(between="not"), "F"),
    Scenario("a repeated commit is fenced", Sizes(takes=1, unheard=1), Rules(fence="aborted"), "F2"),
    Scenario(
        "ends keep the epoch, a repeated commit is fenced",
        Sizes(level=1, takes=1, unheard=1),
        Rules(fence="aborted"),
        "F2",
    ),
    Scenario("what is not open is aborted", Sizes(kills=3), Rules(aborts="always"), "F2"),
    Scenario("an abort that the record does not know aborted nothing", RESTARTS, Rules(since="nothing"), "F1"),
)


def explore(scenario: Scenario, most_states: int = 700_000) -> tuple[int, bool, Trace | None]:
    """States, whether the limit was met, and the first flaw."""
    search = Search(Model(scenario.rules, scenario.sizes).step, lambda w: broken(w, scenario.sizes), most_states)
    found = search.run(World(), scenario.flaw or "F")
    return found.states, found.is_cut, found.trace


if __name__ == "__main__":
    sys.exit(run_scenarios(SCENARIOS, explore))
