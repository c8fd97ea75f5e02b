"""``kproxy webhook``: what its flags may say, and one process from its start to its end."""

import json
import signal
import ssl
import subprocess
import sys
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from kproxy.cli import main
from kproxy.config import ExitCode
from tests.injection.reviews import pod, review_of
from tests.net.certificates import Authority

IMAGE = ("--image", "registry.example/kproxy:0.1.0")


def flags(tmp_path: Path) -> list[str]:
    files = Authority(tmp_path).issue("localhost")
    return ["webhook", "--certificate", str(files.certificate), "--key", str(files.key), *IMAGE]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--listen", "8443"], "'8443' must be HOST:PORT"),
        (["--bootstrap-servers", "kafka"], "'kafka' must be HOST:PORT"),
        (["--memory-limit", "1GB"], "'1GB' must be an amount of memory, such as 96Mi or 1Gi"),
        (["--memory-limit", "64Mi"], "memory-request = 96Mi is above memory-limit = 64Mi"),
        (["--certificate", "/nowhere/tls.crt"], "--certificate: /nowhere/tls.crt: No such file or directory"),
    ],
)
def test_a_wrong_flag_is_named(
    tmp_path: Path, more: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags(tmp_path), *more]) == ExitCode.USAGE
    assert message in capsys.readouterr().err


def test_help_shows_how_a_pod_asks_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["webhook", "--help"]) == ExitCode.OK
    page = capsys.readouterr().out
    assert "kproxy webhook --certificate tls.crt --key tls.key --image" in page
    assert 'kproxy.io/inject: "true"' in page


def test_a_process_serves_until_sigterm(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kproxy", *flags(tmp_path), "--listen", "127.0.0.1:0"]
    [authority] = tmp_path.glob("ca-*.pem")
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            listening: dict[str, Any] = json.loads(process.stderr.readline())
            port = int(listening["listen"].rpartition(":")[2])
            context = ssl.create_default_context(cafile=authority)
            connection = HTTPSConnection("localhost", port, timeout=60, context=context)
            connection.request("POST", "/pods", review_of(pod()))
            answer = json.loads(connection.getresponse().read())
            connection.close()
            assert answer["response"]["patchType"] == "JSONPatch"
            process.send_signal(signal.SIGTERM)
            lines = [json.loads(line) for line in process.stderr]
            assert process.wait(60) == ExitCode.OK
        finally:
            process.kill()
    assert [(line["event"], line["pod"], line["outcome"]) for line in lines] == [
        ("pod admitted", "shop/shipper-7c9d5bd8c4-", "injected")
    ]
