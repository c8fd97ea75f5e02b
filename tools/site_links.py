"""A hook of mkdocs: README becomes the site's first page, and links to files outside of docs/ lead to the repository.

mkdocs knows only what is in docs/. A link such as ``../ARCHITECTURE.md`` is right for people who read the files in the
repository; on the site it becomes an address at ``repo_url``. A link to a file that does not exist fails the build.
"""

import re
from pathlib import Path
from typing import Any, Final

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

_ROOT: Final = Path(__file__).resolve().parent.parent
_OUTSIDE: Final = re.compile(r"\]\(\.\./([^)#\s]+)")
_OF_README: Final = re.compile(r"\]\((?!https?:|#)(docs/)?([^)\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add README.md as index.md; its links are relative to the repository, not to docs/."""
    text = (_ROOT / "README.md").read_text(encoding="utf-8")
    page = _OF_README.sub(lambda link: f"]({'' if link[1] else '../'}{link[2]}", text)
    files.append(File.generated(config, "index.md", content=page))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Replace links that leave docs/ by addresses of the repository.

    :raises PluginError: a link names a file that does not exist.
    """

    def address(link: "re.Match[str]") -> str:
        if not (_ROOT / link[1]).exists():
            raise PluginError(f"{page.file.src_uri}: no file {link[1]} in the repository")
        return f"]({config.repo_url}/blob/main/{link[1]}"

    return _OUTSIDE.sub(address, markdown)
