import json
from datetime import UTC, datetime
from decimal import Decimal

from kproxy.spark.audit.summary import plain
from tests.spark.audit.summaries import summary


def test_the_verdict() -> None:
    assert (summary().verdict, summary().sentence) == ("held", "All promises held.")
    warned = summary(warnings=3)
    assert (warned.verdict, warned.sentence) == ("warnings", "Promises held, with warnings: title of second (3).")
    broken = summary(broken=1200, warnings=3)
    assert (broken.verdict, broken.sentence) == ("broken", "Promises are broken: title of first (1,200).")


def test_what_cannot_be_judged_does_not_change_the_verdict() -> None:
    found = summary(unknown=72)
    assert (found.verdict, found.sentence) == ("held", "All promises held. Unknown: title of third (72).")


def test_as_json() -> None:
    found = json.loads(json.dumps(summary(broken=1).as_json()))
    assert found["verdict"] == "broken"
    assert found["outcomes"][0]["severity"] == "broken"
    assert found["outcomes"][0]["worst"][0]["repeated"] == 0


def test_a_row_of_a_table_is_made_plain() -> None:
    row = {
        "at": datetime(2026, 11, 21, 12, 0, 0, 5, UTC),
        "share": 0.123456,
        "is": True,
        "sum": Decimal(5),
        "none": None,
    }
    assert plain(row) == {"at": "2026-11-21 12:00:00", "share": 0.1235, "is": True, "sum": "5", "none": None}
