"""``make image``: builds the image and proves it: small, closed, told by its bill of materials, at work."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from kproxy import __version__
from kproxy.codec.accelerator import SWITCH, SWITCHED_OFF
from kproxy.demo.demo_broker import running_fake
from kproxy.testing.ports import free_ports
from tools.image_build import ROOT, Image, built_image
from tools.image_run import ended, run_in, started_in

_MB: Final = 1_000_000
#: Each extra of deploy/requirements.lock at work; without a network.
_EXTRAS: Final = """
import boto3, jwt
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
MSKAuthTokenProvider.generate_auth_token("eu-west-1")
boto3.client("sts", region_name="eu-west-1"), boto3.client("sso", region_name="eu-west-1")
jwt.encode({}, "0" * 32, "HS256"), OTLPSpanExporter()
"""
_BILL: Final = "opt/kproxy/sbom.cdx.json"
_COMPILERS: Final = ("cc", "gcc", "as", "ld")
_LARGEST_TREE: Final = 120 * _MB
_READY_SECONDS: Final = 60


class Unproven(Exception):
    """The image is not what it must be."""


def prove_settings(image: Image) -> str:
    """Not root, by number; no shell for what the engine starts."""
    settings = image.settings
    user, _, group = settings["User"].partition(":")
    _demand(user.isdigit() and group.isdigit() and int(user) > 0, f"user {settings['User']!r}")
    _demand(settings["Healthcheck"]["Test"][0] == "CMD", f"health check {settings['Healthcheck']}")
    _demand(settings["Entrypoint"][0].startswith("/"), f"entry point {settings['Entrypoint']}")
    _demand(settings["Labels"]["org.opencontainers.image.version"] == __version__, f"labels {settings['Labels']}")
    return f"user {settings['User']}, entry point {settings['Entrypoint'][0]}"


def prove_size(image: Image) -> str:
    """What was installed on Debian's base: Python, kproxy and what it needs."""
    tree, whole = _size(image.root / "opt"), _size(image.root)
    python = sum(_size(path) for path in image.root.glob("usr/lib/python3*"))
    _demand(tree + python < _LARGEST_TREE, f"{(tree + python) / _MB:.0f} MB")
    return f"kproxy {tree / _MB:.0f} MB, Python {python / _MB:.0f} MB, with Debian {whole / _MB:.0f} MB"


def prove_contents(image: Image) -> str:
    """The bill of materials names all that is installed; nothing that installs more is there."""
    [site] = image.root.glob("opt/kproxy/lib/python3*/site-packages")
    installed = {_key(found) for found in distributions(path=[str(site)])}
    bill = json.loads((image.root / _BILL).read_text())
    named = {(part["name"].lower(), part["version"]) for part in [*bill["components"], bill["metadata"]["component"]]}
    _demand(installed <= named, f"the bill of materials lacks {sorted(installed - named)}")
    _demand(not any(name == "pip" for name, _ in installed), "pip is in it")
    return f"{len(installed)} packages in the bill of materials"


def _key(found: Distribution) -> tuple[str, str]:
    return found.metadata["Name"].lower(), found.version


def prove_version(image: Image) -> str:
    """The program starts, without a shell and without a place to write to."""
    said = run_in(image, [*image.settings["Entrypoint"], "--version"])
    _demand(said == f"kproxy {__version__}", said)
    return said


def prove_accelerator(image: Image) -> str:
    """The compiled functions are in use, and the environment switches them off; nothing that compiles is left."""
    command = [*image.settings["Entrypoint"], "--version", "--json"]
    states = [json.loads(run_in(image, command, more))["accelerator"] for more in ({}, {SWITCH: SWITCHED_OFF})]
    _demand(states == ["in use", "switched off"], f"the accelerator is {states[0]}, or with {SWITCH} {states[1]}")
    compilers = sorted(path.name for path in image.root.glob("usr/bin/*") if path.name in _COMPILERS)
    _demand(not compilers, f"{compilers} are in it")
    return f"{states[0]}; {states[1]} by {SWITCH}={SWITCHED_OFF}"


def prove_extras(image: Image) -> str:
    """What the Dockerfile takes away of the dependencies is not missed."""
    secrets = {"AWS_ACCESS_KEY_ID": "proof", "AWS_SECRET_ACCESS_KEY": "proof"}
    python = str(Path(image.settings["Entrypoint"][0]).parent / "python")
    run_in(image, [python, "-c", _EXTRAS], secrets)
    return "a token for MSK IAM, keys for OAUTHBEARER, an exporter of traces"


def prove_work(image: Image) -> str:
    """A record goes through it, the engine's health check passes, SIGTERM ends it."""
    listen, http = free_ports(2)
    with running_fake() as bootstrap:
        broker = free_ports(1)[0]
        where = {"KPROXY_BOOTSTRAP_SERVERS": bootstrap, "KPROXY_LISTEN": f"127.0.0.1:{listen}"}
        where |= {"KPROXY_BROKER_PORTS": f"{broker}-{broker}", "KPROXY_HTTP": f"127.0.0.1:{http}"}
        program = [*image.settings["Entrypoint"], *image.settings["Cmd"]]
        with started_in(image, program, where) as process:
            _await_ready(image, where)
            run_in(image, image.settings["Healthcheck"]["Test"][1:], where)
            _produce(f"127.0.0.1:{listen}")
            process.send_signal(getattr(signal, image.settings["StopSignal"]))
            code = ended(process)
    _demand(code == 0, f"it ended with {code}")
    return "a record acknowledged, health check passed, ended by its stop signal"


def _await_ready(image: Image, where: dict[str, str]) -> None:
    end = time.monotonic() + _READY_SECONDS
    while True:
        try:
            run_in(image, [*image.settings["Entrypoint"], "health", "--ready"], where)
            return
        except subprocess.CalledProcessError as error:
            _demand(time.monotonic() < end, f"not ready: {error}")


def _produce(bootstrap: str) -> None:
    errors: list[KafkaError | None] = []

    def had(error: KafkaError | None, _: Message) -> None:
        errors.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 30_000})
    producer.produce("proof", b"of the image", on_delivery=had)
    producer.flush(40)
    _demand(errors == [None], f"the record was answered with {errors}")


def _size(top: Path) -> int:
    files = (Path(folder, name) for folder, _, names in os.walk(top) for name in names)
    return sum(path.lstat().st_size for path in files)


def _demand(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Unproven(otherwise)


PROOFS: Final[tuple[Callable[[Image], str], ...]] = (
    prove_settings,
    prove_size,
    prove_contents,
    prove_version,
    prove_accelerator,
    prove_extras,
    prove_work,
)


def commit_epoch(root: Path) -> int:
    """The time of the newest commit, in seconds: the same commit gives the same bytes."""
    git = ["git", "-C", str(root), "log", "-1", "--format=%ct"]
    return int(subprocess.run(git, check=True, capture_output=True, text=True).stdout)


def proven_image(say: Callable[[str], None], bill: Path | None = None) -> None:
    """Build the image and report each proof; ``bill`` is where its bill of materials is copied to.

    :raises Unproven: the first proof that fails, by name.
    """
    work = tempfile.TemporaryDirectory(prefix="kproxy-image-")
    with work as folder, built_image(Path(folder), commit_epoch(ROOT)) as image:
        for proof in PROOFS:
            name = proof.__name__.removeprefix("prove_")
            try:
                say(f"{name}: {proof(image)}")
            except (Unproven, subprocess.SubprocessError) as error:
                raise Unproven(f"{name}: {error}") from error
        if bill is not None:
            shutil.copyfile(image.root / _BILL, bill)


def main() -> int:
    """Build, and print what is proven; 1 at the first that is not."""
    if os.geteuid() != 0:
        print("make image needs root, for it makes a Debian of its own and changes into it", file=sys.stderr)
        return 1
    try:
        proven_image(lambda line: print(line, flush=True))
    except Unproven as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
