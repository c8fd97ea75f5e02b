"""Builds deploy/Dockerfile with buildah, which needs no daemon, on a Debian that mmdebstrap makes of packages."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from kproxy.testing.cache import cache_directory, filled_once

ROOT: Final = Path(__file__).parent.parent
DOCKERFILE: Final = ROOT / "deploy" / "Dockerfile"
SUITE: Final = "trixie"
_BASE: Final = f"localhost/debian:{SUITE}-slim"
_IMAGE: Final = "localhost/kproxy:proof"
#: The authorities that this machine trusts, among them perhaps one of its own network.
_AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
#: What Debian's slim images leave out.
_LEFT_OUT: Final = ("doc", "man", "locale", "info", "lintian")


class Image(NamedTuple):
    """An image's files, mounted, and its settings as the engine has them: User, Env, Entrypoint, Healthcheck, ..."""

    root: Path
    settings: Mapping[str, Any]


def base_tar() -> Path:
    """Debian's smallest, as a tar; kept, since it takes half a minute to make."""

    def make(directory: Path) -> None:
        excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _LEFT_OUT]
        command = [
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            "--mode=root",
            *excluded,
            SUITE,
            directory / "base.tar",
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    return filled_once(cache_directory() / f"debian-{SUITE}-slim", make) / "base.tar"


@contextmanager
def built_image(work: Path, epoch: int) -> Iterator[Image]:
    """Build in ``work``, an empty directory; ``epoch`` is SOURCE_DATE_EPOCH. CalledProcessError if a step fails."""
    tool = _Buildah(work)
    tool.import_base(base_tar())
    arguments = {"BASE": _BASE, "SOURCE_DATE_EPOCH": str(epoch)}
    given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    options = ["--pull-never", "--layers=false", "--format=docker", *given, *tool.authorities(work)]
    tool.run("build", "--quiet", *options, f"--file={DOCKERFILE}", f"--tag={_IMAGE}", str(ROOT))
    container = tool.run("from", "--pull-never", _IMAGE)
    try:
        inspected = json.loads(tool.run("inspect", "--type=image", _IMAGE))
        yield Image(Path(tool.run("mount", container)), inspected["Docker"]["config"])
    finally:
        tool.run("rm", container)


class _Buildah:
    def __init__(self, work: Path) -> None:
        storage = work / "storage.conf"
        places = f'graphroot = "{work}/graph"\nrunroot = "{work}/run"\n'
        storage.write_text(f'[storage]\ndriver = "vfs"\n{places}')
        self._environment = os.environ | {"CONTAINERS_STORAGE_CONF": str(storage), "BUILDAH_ISOLATION": "chroot"}

    def run(self, *arguments: str) -> str:
        command = ["buildah", *arguments]
        return subprocess.run(
            command, env=self._environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()

    def import_base(self, tar: Path) -> None:
        container = self.run("from", "scratch")
        self.run("add", "--quiet", container, str(tar), "/")
        self.run("commit", "--quiet", "--rm", container, _BASE)

    def authorities(self, work: Path) -> list[str]:
        """Let pip trust in the build whom this machine trusts."""
        config = work / "pip.conf"
        config.write_text("[global]\ncert = /run/authorities.crt\n")
        return [f"--volume={_AUTHORITIES}:/run/authorities.crt:ro", f"--volume={config}:/etc/pip.conf:ro"]
