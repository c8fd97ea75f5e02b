"""A real Prometheus that watches one address, and what it can be asked."""

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import trio
import yaml

from kproxy.config import Address
from kproxy.testing.ports import free_ports

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
RULES = DEPLOY / "prometheus" / "kproxy.rules.yml"
PATIENCE = 60.0
_SCRAPE_MS = 250


@dataclass(frozen=True)
class Prometheus:
    """One that runs."""

    address: str

    async def ask(self, path: str, **parameters: str) -> Any:
        """The data of a response of its HTTP API; OSError if it does not answer, or says no."""
        return await trio.to_thread.run_sync(self._ask, f"/api/v1/{path}?{urlencode(parameters)}")

    def _ask(self, path: str) -> Any:
        with closing(HTTPConnection(self.address, timeout=PATIENCE)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        if answer.status != HTTPStatus.OK:
            raise OSError(body.decode())
        return json.loads(body)["data"]

    async def series(self, query: str) -> list[Any]:
        """What a query gives now."""
        found: list[Any] = (await self.ask("query", query=query))["result"]
        return found

    async def until(self, query: str) -> None:
        """Waits until a query gives something; trio.TooSlowError if it does not."""
        with trio.fail_after(PATIENCE):
            while not await self.series(query):  # noqa: ASYNC110 - another process, which announces nothing
                await trio.sleep(_SCRAPE_MS / 1000)


@asynccontextmanager
async def watching(target: Address, folder: Path) -> AsyncIterator[Prometheus]:
    """Debian's Prometheus with kproxy's rules, scraping a page four times a second until the block ends."""
    config = {
        "global": {"scrape_interval": f"{_SCRAPE_MS}ms", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "kproxy", "static_configs": [{"targets": [str(target)]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [
        program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "log").open("wb") as log:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.run_process, command, check=False, stdout=log, stderr=log))
            running = Prometheus(address)
            with trio.fail_after(PATIENCE):
                while not await _answers(running):  # noqa: ASYNC110 - as above
                    await trio.sleep(0.1)
            yield running
            nursery.cancel_scope.cancel()


async def _answers(running: Prometheus) -> bool:
    try:
        await running.ask("status/buildinfo")
    except OSError:
        return False
    return True


def program(name: str) -> str:
    """Where a program of Debian's prometheus package is; AssertionError if it is missing: nothing is skipped."""
    found = shutil.which(name)
    assert found is not None, f"{name} is missing: run make system"
    return found
