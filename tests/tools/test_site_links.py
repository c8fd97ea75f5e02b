"""Links of the documentation as they become on the site."""

from types import SimpleNamespace

import pytest
from mkdocs.exceptions import PluginError

from tools.site_links import on_page_markdown

CONFIG = SimpleNamespace(repo_url="https://host/owner/kproxy")
PAGE = SimpleNamespace(file=SimpleNamespace(src_uri="page.md"))


def test_a_link_to_the_repository_gets_its_address() -> None:
    text = "[map](../ARCHITECTURE.md) [part](../README.md#figures) [here](metrics.md)"
    assert on_page_markdown(text, page=PAGE, config=CONFIG) == (
        "[map](https://host/owner/kproxy/blob/main/ARCHITECTURE.md) "
        "[part](https://host/owner/kproxy/blob/main/README.md#figures) [here](metrics.md)"
    )


def test_a_link_to_a_file_that_is_not_there_fails_the_build() -> None:
    with pytest.raises(PluginError, match=r"page\.md: no file NOWHERE\.md"):
        on_page_markdown("[gone](../NOWHERE.md)", page=PAGE, config=CONFIG)
