"""Chromium without a screen, driven by Debian's chromedriver. All calls block: from trio, use a thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from shutil import which

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

#: Not in any DNS: Chromium is told to look for it on this host.
FOREIGN_NAME = "evil.example"
PATIENCE_SECONDS = 120


@contextmanager
def chromium() -> Iterator[Chrome]:
    """A browser with a profile of its own, until the block ends."""
    options = ChromeOptions()
    options.binary_location = which("chromium") or "chromium"
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1300,1400",
        f"--host-resolver-rules=MAP {FOREIGN_NAME} 127.0.0.1",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = Chrome(options=options, service=Service(which("chromedriver") or "chromedriver"))
    try:
        browser.set_page_load_timeout(PATIENCE_SECONDS)
        browser.set_script_timeout(PATIENCE_SECONDS)
        yield browser
    finally:
        browser.quit()
