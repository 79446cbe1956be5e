"""A page in headless Chromium, watched: nothing on the console, nothing asked of the network."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TIMEOUT_MS = 60_000  # other tests may run at the same time


@contextmanager
def chromium() -> Iterator:
    """A browser of the system; skips if there is no browser, or no Playwright to drive it."""
    playwright = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class WatchedPage:
    """One file in a window of its own; `close` checks its messages and requests."""

    def __init__(self, browser, path: Path, address: str = "#/", width: int = 1360, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page, self.url, self.said, self.asked = self.context.new_page(), path.as_uri(), [], []
        self.page.set_default_timeout(TIMEOUT_MS)
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self._go(address)

    def at(self, address: str):
        """The page once it shows this address; the remains of other addresses are gone."""
        self._go("#/away", "='#/away'")
        self.page.evaluate("document.body.removeAttribute('data-shown')")
        return self._go(address)

    def _go(self, address: str, shown: str = ""):
        try:
            self.page.goto(self.url + address)
            self.page.wait_for_selector(f"body[data-shown{shown}]", state="attached")
        except Exception as error:
            raise AssertionError(f"{address}: {self.said}") from error
        return self.page

    def close(self) -> None:
        self.context.close()
        assert not self.said, self.said
        assert {url.partition("#")[0] for url in self.asked} == {self.url}
