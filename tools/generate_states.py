"""Draws a transaction's states into verification/corners/transactions.md; ``--check``: are they current?"""

import sys
from pathlib import Path

from kproxy.txn.states import TRANSITIONS, TransactionEvent, TransactionState
from tools.one_page import with_part, write_or_check

PAGE = Path(__file__).parent.parent / "verification" / "corners" / "transactions.md"
BEGIN, END = "<!-- states: made by `make generate` from kproxy/txn/states.py -->", "<!-- /states -->"
_WORDS = {
    TransactionEvent.BEGAN: "data or offsets",
    TransactionEvent.COMMIT_ASKED: "EndTxn, commit",
    TransactionEvent.ABORT_ASKED: "EndTxn, abort",
    TransactionEvent.COMMITTED: "the log shows it",
    TransactionEvent.ABORTED: "the log shows it, or a claim",
    TransactionEvent.REFUSED: "the broker refuses the end",
    TransactionEvent.PREPARED: "prepare",
    TransactionEvent.INITIALIZED: "InitProducerId",
    TransactionEvent.EXPIRED: "not used for long",
}


def diagram() -> str:
    """The table as a Mermaid state diagram: an arrow for each transition."""
    arrows = [
        f"    {state.value} --> {following.value}: {_WORDS[event]}" for (state, event), following in TRANSITIONS.items()
    ]
    first = f"    [*] --> {TransactionState.EMPTY.value}: InitProducerId"
    last = f"    {TransactionState.DEAD.value} --> [*]"
    return "\n".join(["```mermaid", "stateDiagram-v2", first, *arrows, last, "```"])


def drawn(page: str) -> str:
    """The page with the diagram between its marks; ValueError if it has none."""
    return with_part(page, BEGIN, END, diagram())


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference."""
    return write_or_check(PAGE, drawn(PAGE.read_text(encoding="utf-8")), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
