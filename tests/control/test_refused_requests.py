"""A whole kproxy: who has no right to the control API or to the status page gets nothing, and the metrics say so."""

import http.client
import re
from pathlib import Path
from urllib.request import urlopen

import trio

from kproxy.testing.fake_broker import open_fake_cluster
from kproxy.testing.ports import free_ports
from tests.support.processes import kproxy, serving

TOKEN = "correct-horse-battery"
ALL = "/v1/transactions"
GOOD = {"Authorization": f"Bearer {TOKEN}"}
SITE = "http://evil.example"


def ask(place: str, path: str, headers: dict[str, str]) -> int:
    """The status of the response; what is asked for must never show the token."""
    host, _, port = place.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        assert TOKEN.encode() not in answer.read()
        return answer.status
    finally:
        connection.close()


def refused(place: str) -> dict[tuple[str, str], int]:
    """By listener and reason, as the metrics page has it, without those that are 0."""
    with urlopen(f"http://{place}/metrics", timeout=30) as page:
        rows = re.findall(
            r'kproxy_http_requests_refused_total\{listener="(\w+)",reason="(\w+)"\} (\d+)', page.read().decode()
        )
    return {(listener, reason): int(count) for listener, reason, count in rows if int(count)}


async def test_who_has_no_right_is_refused_and_counted(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    control = f"127.0.0.1:{free_ports(1)[0]}"
    flags = ["--control-http", control, "--control-token-file", str(token)]
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, *flags) as running:
        await serving(running)
        page = str((await running.said("listening"))["http"])

        async def status(place: str, path: str, **headers: str) -> int:
            return await trio.to_thread.run_sync(
                ask, place, path, {key.replace("_", "-"): headers[key] for key in headers}
            )

        assert await status(control, ALL, **GOOD) == 200
        assert await trio.to_thread.run_sync(refused, page) == {}
        assert await status(control, ALL) == 401
        assert await status(control, ALL, Authorization="Bearer guess-guess-guess") == 401
        assert await status(control, ALL, **GOOD, Host="evil.example") == 403
        assert await status(control, ALL, **GOOD, Origin=SITE) == 403
        assert await status(control, ALL, **GOOD, Sec_Fetch_Site="cross-site") == 403
        assert await status(page, "/v1/status", Host="evil.example") == 403
        assert await status(page, "/v1/status", Origin=SITE) == 403
        assert await trio.to_thread.run_sync(refused, page) == {
            ("control", "token"): 2,
            ("control", "host"): 1,
            ("control", "origin"): 2,
            ("http", "host"): 1,
            ("http", "origin"): 1,
        }
        assert TOKEN not in str(running.lines)
