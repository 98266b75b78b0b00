"""A browser without a window, driven through ChromeDriver's own protocol (W3C WebDriver, and the browser's own)."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

DRIVER, BROWSER = which("chromedriver"), which("chromium") or which("google-chrome")
NO_BROWSER = "needs chromium and chromedriver: make test-all"
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
STARTED = re.compile(r"started successfully on port (\d+)")
ENTER, TAB = "\ue007", "\ue004"
LONG = 60.0
DIRECT = build_opener(ProxyHandler({}))  # the driver is on this machine


class Browser:
    """One tab of a browser. Elements are named by what the driver returns for them."""

    def __init__(self, address: str) -> None:
        self._address = address

    def post(self, path: str, **body: object) -> Any:
        """Send a command to the driver and return its answer. Raises HTTPError if it fails."""
        data = json.dumps(body).encode()
        request = Request(f"{self._address}/{path}", data, {"Content-Type": "application/json"})  # noqa: S310 - our driver
        with DIRECT.open(request, timeout=LONG) as answer:
            return json.load(answer)["value"]

    def open(self, path: Path) -> None:
        self.post("url", url=path.as_uri())

    def script(self, body: str, *arguments: object) -> Any:
        """Return what the body of a function returns in the page; a policy of the page does not hold for it."""
        return self.post("execute/sync", script=body, args=arguments)

    def devtools(self, command: str, **parameters: object) -> Any:
        return self.post("goog/cdp/execute", cmd=command, params=parameters)

    def keys(self, *keys: str) -> None:
        """Press keys where the focus is, one after the other."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.post("actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])


@contextmanager
def browsing(profile: Path) -> Iterator[Browser]:
    """Start a browser that keeps all of its own files in the folder ``profile``."""
    assert DRIVER is not None
    assert BROWSER is not None
    driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert driver.stdout is not None
        ports = (STARTED.search(line) for line in driver.stdout)
        port = next(found[1] for found in ports if found)
        root = f"http://localhost:{port}"
        options = {"binary": BROWSER, "args": [*ARGUMENTS, f"--user-data-dir={profile}"]}
        always = {"browserName": "chrome", "goog:chromeOptions": options}
        session = Browser(root).post("session", capabilities={"alwaysMatch": always})["sessionId"]
        yield Browser(f"{root}/session/{session}")
        DIRECT.open(Request(f"{root}/session/{session}", method="DELETE"), timeout=LONG).close()  # noqa: S310 - as above
    finally:
        driver.terminate()
        driver.communicate(timeout=LONG)
