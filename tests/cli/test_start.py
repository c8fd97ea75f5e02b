"""What ``kproxy run`` does not import before it is needed: each of these takes a good part of the time of a start."""

import json
import os
import signal
import subprocess
import sys

LATER = (
    "cryptography",
    "h11",
    "http.client",
    "jwt",
    "kproxy.control.control_api",
    "kproxy.doctor",
    "opentelemetry",
    "prometheus_client",
    "rich",
    "starlette",
    "urllib.request",
    "yaml",
)
#: Runs kproxy and prints, at its end, what it has imported.
_PROGRAM = """
import json, sys
from kproxy.cli import main
code = main(sys.argv[1:])
print(json.dumps(sorted(sys.modules)))
sys.exit(code)
"""


def test_what_the_options_do_not_ask_for_is_not_imported_before_kproxy_listens() -> None:
    ports = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-format", "json"]
    command = [sys.executable, "-c", _PROGRAM, "run", "--bootstrap-servers", "127.0.0.1:1", *ports]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("KPROXY_")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert any(b"listening" in line for line in process.stderr)
            process.send_signal(signal.SIGTERM)
            imported = set(json.loads(process.stdout.read()))
        finally:
            process.kill()
    assert "trio" in imported
    assert not imported & set(LATER)
