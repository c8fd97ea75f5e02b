"""What is explored, and which flaw shows without a rule."""

from typing import NamedTuple

#: kproxy's rules, each with what it replaced.
RULES = {
    # after an abort that a claim settled a decision raises the epoch | EndTxn answers the epoch as it was
    "settle": ("raise", "keep"),
    # EndTxn answers the identity that its own decision gave | the one that the log shows now
    "answer": ("decision", "view"),
    # a claim names an identity after the log's, or is made for the producer that has the id | names any
    "claim": ("after", "any"),
    # an InitProducerId that was answered changes nothing | claims all the same
    "retry": ("same", "claims"),
    # an InitProducerId that is refused changes nothing | gives up the claim of the transaction that is open
    "refused": ("nothing", "gives-up"),
    # the last decision outlives the id | is forgotten with it
    "expiry": ("keep", "forget"),
}


class Scenario(NamedTuple):
    """One run: how often each thing may happen, and the rule without which ``flaw`` shows."""

    name: str
    sizes: dict[str, int]
    change: tuple[str, str]
    flaw: str


SCENARIOS = (
    Scenario(
        "the decision of an abort is lost",
        {"producers": 1, "inits": 1, "txns": 2, "aborts": 1, "lost": 1},
        ("settle", "keep"),
        "acknowledged and committed, but not written",
    ),
    Scenario(
        "another producer follows the decision",
        {"producers": 2, "inits": 2, "txns": 1},
        ("answer", "view"),
        "two producers with one identity",
    ),
    Scenario(
        "a decision comes between InitProducerId and its claim",
        {"producers": 2, "inits": 2, "txns": 2},
        ("claim", "any"),
        "two producers with one identity",
    ),
    Scenario(
        "a copy of InitProducerId comes late",
        {"producers": 1, "inits": 1, "bumps": 1, "txns": 1, "copies": 1},
        ("retry", "claims"),
        "torn",
    ),
    Scenario(
        "a copy of InitProducerId comes after the next end",
        {"producers": 1, "inits": 1, "bumps": 1, "txns": 2, "copies": 1},
        ("refused", "gives-up"),
        "aborted for a request that was refused",
    ),
    Scenario(
        "the id expires before the EndTxn is repeated",
        {"producers": 1, "inits": 1, "txns": 1, "unheard": 1, "expiries": 1},
        ("expiry", "forget"),
        "fenced, though nobody has replaced it",
    ),
    Scenario(
        "all at once",
        {"producers": 2, "inits": 2, "bumps": 1, "txns": 2, "aborts": 1, "lost": 1, "copies": 1, "unheard": 1},
        ("claim", "any"),
        "two producers with one identity",
    ),
)
