"""A headless Chromium, driven over the WebDriver protocol: a few requests of HTTP and JSON."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


class Browser:
    """One session; what goes wrong in a page's console is kept."""

    def __init__(self, driver: str, folder: Path) -> None:
        self._driver = driver
        options = {
            "args": [*ARGUMENTS, f"--user-data-dir={folder}"],
            "binary": shutil.which("chromium"),
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"

    def _ask(self, method: str, path: str, body: dict | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._driver + path, data, headers, method=method)
        try:
            # The environment may name a proxy, which is not for this machine.
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.read().decode()[:2000]}") from None

    def _do(self, what: str, **body: Any) -> Any:
        return self._ask("POST", f"{self._session}/{what}", body)

    def devtools(self, command: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return self._do("goog/cdp/execute", cmd=command, params=parameters)

    def show(self, width: int, scheme: str) -> None:
        """Shows pages this many pixels wide, and light or dark."""
        narrow = width < 600
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": narrow}
        self.devtools("Emulation.setDeviceMetricsOverride", **metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", features=features)

    def open(self, page: Path) -> None:
        """Opens a file."""
        self._do("url", url=page.as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function with that body returns, in the page."""
        return self._do("execute/sync", script=script, args=list(arguments))

    def complaints(self) -> list[str]:
        """What the console was told since the last call: errors, warnings, refusals."""
        entries = self._do("se/log", type="browser")
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def picture(self) -> bytes:
        """All of the page, as a PNG."""
        shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def end(self) -> None:
        self._ask("DELETE", self._session)


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with an empty profile in that folder."""
    driver = shutil.which("chromedriver")
    assert driver, "chromium-driver is missing: run `make setup`"
    process = subprocess.Popen(
        [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        for line in process.stdout:
            if "started successfully on port" in line:
                port = line.rsplit(" ", 1)[1].strip().rstrip(".")
                break
        else:
            raise RuntimeError("chromedriver did not start")
        session = Browser(f"http://127.0.0.1:{port}", folder)
        try:
            yield session
        finally:
            session.end()
    finally:
        process.terminate()
        process.wait(timeout=30)
