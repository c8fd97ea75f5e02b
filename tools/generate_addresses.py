"""Writes the repository's address, of which mkdocs.yml is the one source, into the other files that name it.

With ``--check`` it only tells whether they are up to date.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.one_page import write_or_check

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = "mkdocs.yml"
PLACES: Final = ("pyproject.toml", "deploy/helm/kproxy/Chart.yaml")
_SOURCE: Final = re.compile(r"^repo_url: https://github\.com/([\w.-]+)/([\w.-]+)$", re.MULTILINE)
#: In a file of PLACES every address of GitHub is one of this project.
_REPOSITORY: Final = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+")
_SITE: Final = re.compile(r"https://[\w-]+\.github\.io/[\w.-]+")


def addressed(root: Path) -> Mapping[str, str]:
    """Return the text that each file should have.

    :raises ValueError: mkdocs.yml has no ``repo_url`` at GitHub.
    """
    found = _SOURCE.search((root / SOURCE).read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{SOURCE}: repo_url must be https://github.com/OWNER/NAME")
    owner, name = found.groups()
    texts = {place: (root / place).read_text(encoding="utf-8") for place in PLACES}
    return {
        place: _SITE.sub(
            f"https://{owner}.github.io/{name}", _REPOSITORY.sub(f"https://github.com/{owner}/{name}", text)
        )
        for place, text in texts.items()
    }


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Write the files, or with ``--check`` name those that differ; 1 if one does."""
    return max([write_or_check(root / place, text, arguments) for place, text in addressed(root).items()])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
