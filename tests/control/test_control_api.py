import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import ASGIApp
from trio.testing import MockClock

from kproxy.codec.messages import ErrorCode
from kproxy.control.control_api import MAX_BODY_BYTES, make_api
from kproxy.control.guard import Guard, Rules, by_rules
from kproxy.control.json_schema import faults
from kproxy.control.openapi import document
from kproxy.control.schemas import DESCRIBED, LIST, PROBLEM
from kproxy.txn.described import OwnerId, Stale
from kproxy.txn.txn_error import TxnError
from tests.control.asgi import JSON, Answer, call, post
from tests.control.fake_transactions import NOW_MS, FakeTransactions

ALL = "/v1/transactions"
ID, OWNER = OwnerId(1000, 0), {"producer_id": 1000, "producer_epoch": 0}
CHANGES = ("commit", "abort", "prepare")


def served(control: FakeTransactions) -> ASGIApp:
    return Guard(make_api(control), by_rules(Rules(hosts=None, token=None)), [].append)


async def test_begin_by_client_id() -> None:
    control = FakeTransactions()
    answer = await post(served(control), ALL, {"client_id": "loader"})
    assert answer.status == 201
    assert not list(faults(answer.json, DESCRIBED))
    assert (answer.json["transactional_id"], answer.json["state"]) == ("kproxy-loader", "Ongoing")
    assert answer.headers["location"] == f"{ALL}/kproxy-loader"
    assert control.calls == [("begin", "loader", None, 60_000)]


async def test_begin_with_all_that_may_be_said() -> None:
    control = FakeTransactions()
    body = {"client_id": "loader", "transactional_id": "orders/ü", "timeout_ms": 5_000}
    answer = await post(served(control), ALL, body)
    assert answer.headers["location"] == f"{ALL}/orders%2F%C3%BC"
    assert control.calls == [("begin", "loader", "orders/ü", 5_000)]


@pytest.mark.parametrize(
    ("change", "body", "called"),
    [
        ("commit", {"owner": OWNER}, ("commit", "t", None, (), ID, False)),
        ("commit", {"batch_id": "7", "members": []}, ("commit", "t", "7", (), None, False)),
        ("abort", {"owner": OWNER}, ("abort", "t", (), ID, False)),
        ("prepare", {"owner": OWNER}, ("prepare", "t", ID, None)),
        ("prepare", {"owner": OWNER, "batch_id": "b"}, ("prepare", "t", ID, "b")),
    ],
)
async def test_changes(change: str, body: object, called: tuple[object, ...]) -> None:
    control = FakeTransactions()
    await control.begin(client_id="a", transactional_id="t", timeout_ms=1)
    answer = await post(served(control), f"{ALL}/t/{change}", body)
    assert answer.status == 200
    assert not list(faults(answer.json, DESCRIBED))
    assert control.calls[1:] == [called]


@pytest.mark.parametrize(
    ("what", "body", "called"),
    [
        ("commit", {"members": ["m"], "owner": OWNER, "abort_others": True}, ("commit", "t", None, ("m",), ID, True)),
        ("abort", {"owner": OWNER, "abort_others": True}, ("abort", "t", (), ID, True)),
        ("initialize", None, ("initialize", "t", "", 60_000)),
        ("initialize", {"client_id": "d", "timeout_ms": 5}, ("initialize", "t", "d", 5)),
        ("members/x%2Fy/begin", {"client_id": "c"}, ("begin_member", "t", "x/y", "c", None, None, False)),
        (
            "members/x/begin",
            {"client_id": "c", "owner": OWNER, "timeout_ms": 5},
            ("begin_member", "t", "x", "c", ID, 5, False),
        ),
        ("members/m/prepare", None, ("prepare_member", "t", "m", None)),
        ("members/m/prepare", {"records": 5}, ("prepare_member", "t", "m", 5)),
        ("members/m/abort", {}, ("abort_member", "t", "m")),
    ],
)
async def test_members(what: str, body: object, called: tuple[object, ...]) -> None:
    control = FakeTransactions()
    told = await control.initialize("t", client_id="", timeout_ms=1)
    assert told.owner == ID
    await control.begin_member("t", "m", client_id="m")
    answer = await post(served(control), f"{ALL}/t/{what}", body)
    assert answer.status == 200
    assert not list(faults(answer.json, DESCRIBED))
    assert OwnerId(**answer.json["owner"]).producer_id == 1000
    assert control.calls[-1] == called


@pytest.mark.parametrize(
    ("what", "body", "words"),
    [
        ("members/m/begin", {}, "client_id"),
        ("members//begin", {"client_id": "c"}, "/v1/openapi.json"),
        ("members/%FF/begin", {"client_id": "c"}, "The member in the path"),
        ("commit", {}, "one of owner, batch_id must be given"),
        ("commit", {"members": ["m"]}, "one of owner, batch_id must be given"),
        ("abort", {"abort_others": True}, "owner"),
        ("prepare", None, "owner"),
        ("abort", {"owner": OWNER | {"producer_epoch": 7}}, "a newer producer"),
        ("prepare", {"owner": OWNER | {"producer_epoch": 7}}, "a newer producer"),
        ("commit", {"owner": {"producer_id": 1}}, "producer_epoch"),
        ("members/m/prepare", {"records": -1}, "records"),
        ("commit", {"batch_id": "7", "abort_others": 1}, "abort_others must be boolean"),
        ("commit", {"owner": OWNER | {"producer_epoch": 7}}, "a newer producer"),
    ],
)
async def test_what_is_wrong_with_members_is_named(what: str, body: object, words: str) -> None:
    control = FakeTransactions()
    await control.initialize("t", client_id="", timeout_ms=1)
    answer = await post(served(control), f"{ALL}/t/{what}", body)
    assert 400 <= answer.status < 500
    assert words in answer.json["detail"]


async def test_a_slash_is_a_part_of_a_transactional_id() -> None:
    control = FakeTransactions()
    await control.begin(client_id="a", transactional_id="x/commit", timeout_ms=1)
    assert (await call(served(control), "GET", f"{ALL}/x%2Fcommit")).json["transactional_id"] == "x/commit"
    assert (await post(served(control), f"{ALL}/x%2Fcommit/commit", {"batch_id": "7"})).status == 200
    assert (await post(served(control), f"{ALL}/x%2Fcommit")).status == 405


async def test_what_is_old_says_how_old_it_is_and_why() -> None:
    control = FakeTransactions(stale=Stale(NOW_MS, "no broker answers"))
    await control.begin(client_id="a", transactional_id="one", timeout_ms=1)
    app = served(control)
    for path, schema in ((ALL, LIST), (f"{ALL}?undecided=true", LIST), (f"{ALL}/one", DESCRIBED)):
        answer = await call(app, "GET", path)
        assert answer.status == 200
        assert not list(faults(answer.json, schema))
        assert answer.json["stale"] == {"as_of_ms": NOW_MS, "reason": "no broker answers"}


async def test_where_nothing_is_known_the_reason_comes_with_a_time_to_ask_again() -> None:
    control = FakeTransactions(failures=[TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker answers")])
    answer = await call(served(control), "GET", ALL)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert "no broker answers" in answer.json["detail"]
    assert "retry-after" not in (await call(served(control), "GET", f"{ALL}/none")).headers


async def test_list_and_describe() -> None:
    control = FakeTransactions()
    await control.begin(client_id="a", transactional_id="one", timeout_ms=1)
    await control.begin(client_id="b", transactional_id="two", timeout_ms=1)
    await control.commit("two")
    control.write("one", "orders", 3)
    app = served(control)
    listed = (await call(app, "GET", ALL)).json
    assert not list(faults(listed, LIST))
    assert [row["transactional_id"] for row in listed["transactions"]] == ["one", "two"]
    some = (await call(app, "GET", f"{ALL}?state=Ongoing&state=Empty")).json
    assert [row["transactional_id"] for row in some["transactions"]] == ["one"]
    assert (await call(app, "GET", f"{ALL}/one")).json["partitions"] == [{"topic": "orders", "partition": 3}]
    assert (await call(app, "GET", f"{ALL}?state=open")).error == "INVALID_REQUEST"


async def test_the_document_is_served() -> None:
    answer = await call(served(FakeTransactions()), "GET", "/v1/openapi.json")
    assert answer.json == json.loads(json.dumps(document()))


@pytest.mark.parametrize(
    ("code", "status"),
    [(ErrorCode.CONCURRENT_TRANSACTIONS, 409), (ErrorCode.COORDINATOR_NOT_AVAILABLE, 503)],
)
async def test_what_the_service_refuses_has_kafkas_name(code: ErrorCode, status: int) -> None:
    control = FakeTransactions(failures=[TxnError(code, "not now")])
    answer = await post(served(control), f"{ALL}/t/commit", {"batch_id": "7"})
    assert (answer.status, answer.error) == (status, code.name)
    assert answer.json["detail"].startswith("not now. ")


async def test_a_flaw_is_answered_and_raised_for_the_log() -> None:
    control = FakeTransactions(failures=[ZeroDivisionError("secret")])
    with pytest.raises(ZeroDivisionError):
        await post(served(control), f"{ALL}/t/commit", {"batch_id": "7"})


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/", 404),
        ("/v1", 404),
        ("/v1/", 404),
        (f"{ALL}/", 404),
        (f"{ALL}//commit", 404),
        (f"{ALL}/t/commit/", 404),
        (f"{ALL}/t/forget", 404),
        (f"{ALL}/%FF/commit", 400),
        (f"{ALL}/{'x' * 1001}/commit", 400),
        (f"{ALL}/t", 405),
        ("/v1/openapi.json", 405),
    ],
)
async def test_paths_that_are_none(target: str, status: int) -> None:
    control = FakeTransactions()
    answer = await post(served(control), target)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    assert not list(faults(answer.json, PROBLEM))
    assert control.calls == []


BODIES = [
    (b"{", 400),
    (b"null", 400),
    (b"[]", 400),
    (b'{"client_id": "a"} x', 400),
    (b'{"client_id": "a", "client_id": "b"}', 400),
    (b'{"client_id": "a", "timeout_ms": NaN}', 400),
    (b'{"client_id": "a", "timeout_ms": 1' + b"0" * 5000 + b"}", 400),
    (b'{"client_id": "\xff"}', 400),
    (b'{"client_id": "\\ud800"}', 400),
    (b"\xef\xbb\xbf{}", 400),
    (b"[" * 60_000, 400),
    (b" " * (MAX_BODY_BYTES + 1), 413),
    (b"", 400),
]


@pytest.mark.parametrize(("body", "status"), BODIES)
async def test_bodies_that_are_none(body: bytes, status: int) -> None:
    control = FakeTransactions()
    answer = await call(served(control), "POST", ALL, [JSON], body)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    assert control.calls == []


@pytest.mark.parametrize("media_type", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_a_body_of_another_type_is_refused(media_type: str) -> None:
    control = FakeTransactions()
    answer = await call(served(control), "POST", ALL, [("content-type", media_type)], b'{"client_id": "a"}')
    assert (answer.status, control.calls) == (415, [])


async def test_the_type_of_a_body_may_name_its_characters() -> None:
    headers = [("content-type", "Application/JSON; charset=utf-8")]
    assert (await call(served(FakeTransactions()), "POST", ALL, headers, b'{"client_id": "a"}')).status == 201


async def test_a_body_that_grows_too_long_is_not_read_on() -> None:
    control = FakeTransactions()
    parts = [{"type": "http.request", "body": b" " * 100_000, "more_body": True}] * 3
    answer = await call(served(control), "POST", ALL, [JSON], parts=parts)
    assert (answer.status, answer.error, control.calls) == (413, "MESSAGE_TOO_LARGE", [])


async def test_a_body_that_does_not_come_is_not_waited_for(autojump_clock: MockClock) -> None:
    control = FakeTransactions()
    parts = [{"type": "http.request", "body": b"{", "more_body": True}]
    answer = await call(served(control), "POST", ALL, [JSON], parts=parts)
    assert (answer.status, answer.error, control.calls) == (408, "REQUEST_TIMED_OUT", [])


async def test_a_client_that_goes_within_its_body_does_nothing() -> None:
    control = FakeTransactions()
    parts = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    answer = await call(served(control), "POST", ALL, [JSON], parts=parts)
    assert (answer.status, control.calls) == (400, [])


ANYTHING: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["client_id", "transactional_id", "timeout_ms", "batch_id", "members"]), inner
        )
    ),
    max_leaves=6,
)


@given(st.sampled_from([ALL, *(f"{ALL}/t/{change}" for change in CHANGES)]), ANYTHING)
async def test_whatever_is_posted_has_an_answer_of_the_document(target: str, body: object) -> None:
    answer = await post(served(FakeTransactions()), target, body)
    schema = DESCRIBED if answer.status < 300 else PROBLEM
    assert answer.status < 500
    assert not list(faults(answer.json, schema))


@given(st.text(alphabet="/%abc.XYZ012-_~", max_size=20), st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH"]))
async def test_whatever_path_is_asked_for_has_an_answer(tail: str, method: str) -> None:
    answer: Answer = await call(served(FakeTransactions()), method, f"/v1/{tail}")
    assert answer.status < 500


async def test_a_producer_id_is_rejected() -> None:
    control = FakeTransactions()
    app = make_api(control)
    answer = await call(app, "POST", "/v1/producers/6917529027641081857/reject")
    assert (answer.status, answer.json) == (200, {"producer_id": 6917529027641081857})
    assert control.calls == [("reject", 6917529027641081857)]
    for wrong in ("-1", "x", "1.5", str(1 << 63), "1" * 5000):
        answer = await call(app, "POST", f"/v1/producers/{wrong}/reject")
        assert (answer.status, repr(wrong[:40]) in answer.json["detail"]) == (400, True)


async def test_a_list_of_what_readers_wait_for() -> None:
    control = FakeTransactions()
    app = served(control)
    for name in ("open", "prepared", "done"):
        await post(app, ALL, {"transactional_id": name, "client_id": "c"})
    owner = (await call(app, "GET", f"{ALL}/prepared")).json["owner"]
    await post(app, f"{ALL}/prepared/prepare", {"owner": owner})
    await post(app, f"{ALL}/done/commit", {"batch_id": "7"})
    found = (await call(app, "GET", f"{ALL}?undecided=true")).json["transactions"]
    assert [(row["transactional_id"], row["undecided_parts"]) for row in found] == [("open", 0), ("prepared", 1)]
    assert len((await call(app, "GET", f"{ALL}?undecided=false")).json["transactions"]) == 3
    assert (await call(app, "GET", f"{ALL}?undecided=maybe")).error == "INVALID_REQUEST"
