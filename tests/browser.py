"""A headless Chromium that tests drive, by the W3C WebDriver protocol (https://www.w3.org/TR/webdriver2/)."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip
KEYS = {"Escape": "\ue00c", "ArrowDown": "\ue015", "ArrowUp": "\ue013"}
ROOT = Path(__file__).resolve().parents[1]


def browsers() -> tuple[str, str] | None:
    """Return Chromium and its driver, or None if one of them is not installed."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = next(filter(None, map(shutil.which, ("chromedriver", "chromium-driver"))), None)
    return None if browser is None or driver is None else (browser, driver)


def axe_script() -> str | None:
    """Return axe-core's source: from the file that AXE_CORE names, or from node_modules; None if there is neither."""
    named = os.environ.get("AXE_CORE")
    places = [Path(named)] if named else [p / "node_modules" / "axe-core" / "axe.min.js" for p in (ROOT, *ROOT.parents)]
    return next((place.read_text(encoding="utf-8") for place in places if place.is_file()), None)


class Browser:
    """One window. Close it when done, or use it in a ``with`` statement."""

    def __init__(self, folder: Path, *, width: int = 1280, height: int = 860) -> None:
        found = browsers()
        assert found is not None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._log = (folder / "chromedriver.log").open("wb")
        self._driver = subprocess.Popen([found[1], f"--port={port}"], stdout=self._log, stderr=self._log)
        self._url = f"http://127.0.0.1:{port}"
        flags = [*FLAGS, f"--window-size={width},{height}", f"--user-data-dir={folder / 'profile'}"]
        options = {
            "browserName": "chrome",
            "timeouts": {"script": 110_000},  # axe-core on a long page, on a busy machine
            "goog:chromeOptions": {"binary": found[0], "args": flags},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        self.wait(self._answers, 60)
        self._session = ""
        self._session = self._send("POST", "", {"capabilities": {"alwaysMatch": options}})["sessionId"]
        self.size(width, height)

    def _answers(self) -> bool:
        try:
            return bool(json.load(urllib.request.urlopen(f"{self._url}/status"))["value"]["ready"])
        except (OSError, ValueError):  # not yet, or only half
            return False

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        session = f"/{self._session}" if self._session else ""
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(f"{self._url}/session{session}{path}", data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as e:
            raise AssertionError(json.load(e)["value"]["message"]) from None

    def open(self, page: str | Path) -> None:
        """Open an address or a file, and wait until the page is ready."""
        self.go(page)
        self.wait(lambda: self.run("return document.body?.dataset.ready"))

    def go(self, page: str | Path) -> None:
        """Open an address or a file anew, even if it differs from the one that is open in its last part alone."""
        self._send("POST", "/url", {"url": "about:blank"})
        self.problems()  # of the page before
        self._send("POST", "/url", {"url": page if isinstance(page, str) else page.absolute().as_uri()})

    def run(self, script: str, *given: Any) -> Any:
        """Run a script in the page, and return what it returns; promises are waited for."""
        return self._send("POST", "/execute/sync", {"script": script, "args": list(given)})

    def wait(self, what: Callable[[], Any], seconds: float = 30) -> Any:
        """Wait until something is true, and return it."""
        deadline = time.monotonic() + seconds
        while not (result := what()):
            assert time.monotonic() < deadline, "the page never came so far"
            time.sleep(0.02)
        return result

    def until(self, script: str, *given: Any) -> Any:
        """Wait until a script returns something that is true, and return it."""
        return self.wait(lambda: self.run(script, *given))

    def press(self, *keys: str) -> None:
        """Press keys one after another: characters, or names of `KEYS`."""
        pressed = [KEYS.get(key, key) for key in keys]
        actions = [{"type": kind, "value": key} for key in pressed for kind in ("keyDown", "keyUp")]
        self._send("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def click(self, selector: str) -> None:
        """Click what a selector finds first, as a person would: it has to be visible."""
        found = self._send("POST", "/element", {"using": "css selector", "value": selector})
        self._send("POST", f"/element/{next(iter(found.values()))}/click")

    def text(self, selector: str) -> str:
        """The text that is visible in what a selector finds first."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def shows(self, selector: str) -> bool:
        """Whether what a selector finds first can be seen."""
        return bool(self.run("return document.querySelector(arguments[0])?.checkVisibility() ?? false", selector))

    def size(self, width: int, height: int) -> None:
        """Make the page this wide and high, also narrower than a window can be."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self._send("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics})

    def problems(self) -> list[str]:
        """What the page has written to its console since it was opened or the last call, but for the missing icon."""
        entries = self._send("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if "favicon" not in entry["message"]]

    def violations(self, axe: str) -> list[str]:
        """The rules of WCAG 2.2 A and AA and best practice that axe-core finds broken, with where."""
        self.run(f"{axe}; window.axe = axe; return 1")
        found = self.run("return axe.run(document).then(result => result.violations)")
        return [f"{v['id']} ({v['impact']}): {n['html'][:200]} {n['any'][:1]}" for v in found for n in v["nodes"]]

    def close(self) -> None:
        """Close the window."""
        try:
            self._send("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(20)
            self._log.close()

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
