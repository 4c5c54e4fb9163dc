"""A headless Chromium, driven over a pipe by the DevTools protocol: what a test of a page needs, and no more."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
KEYS = {"Enter": (13, "\r"), "Escape": (27, None), "Tab": (9, None), "ArrowUp": (38, None),
        "ArrowDown": (40, None), "ArrowLeft": (37, None), "ArrowRight": (39, None)}  # fmt: skip


def find_browser() -> str | None:
    """A Chromium on the path."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. What the page's console or the browser complains about is kept in `complaints`."""

    def __init__(self, path: str, profile: Path, width: int = 1400, height: int = 1000) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # The browser reads commands from 3 and writes answers to 4; a shell puts the pipes there.
        command = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, path, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
             "--remote-debugging-pipe", f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._count, self._session = b"", 0, None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def open(self, url: str) -> None:
        """Go to an address."""
        self._call("Page.navigate", url=url)

    def value(self, expression: str):
        """What JavaScript says, promises awaited; an exception is an AssertionError."""
        answer = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 60.0) -> None:
        """Wait until JavaScript says something true."""
        end = time.monotonic() + seconds
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < end, f"{expression} did not come true; {self.complaints}"
            time.sleep(0.03)

    def press(self, *keys: str) -> None:
        """Type keys, by name or letter, as a person would."""
        for key in keys:
            code, text = KEYS[key] if key in KEYS else (ord(key.upper()), key)
            event = {"key": key, "windowsVirtualKeyCode": code}
            self._call(
                "Input.dispatchKeyEvent",
                type="keyDown",
                **event,
                **({"text": text} if text else {}),
            )
            self._call("Input.dispatchKeyEvent", type="keyUp", **event)

    def click(self, selector: str) -> None:
        """Click the middle of the first element that fits."""
        self._show(selector)
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def point(self, selector: str) -> None:
        """Move the mouse over an element."""
        self._show(selector)
        x, y = self._middle(selector)
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        data = self._call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def _show(self, selector: str) -> None:
        self.value(
            f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})"
        )

    def _middle(self, selector: str) -> tuple[float, float]:
        box = self.value(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        return box[0], box[1]

    def _call(self, method: str, **parameters):
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _note(self, event) -> None:
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.complaints.append(
                parameters["entry"]["text"] + " " + parameters["entry"].get("url", "")
            )
        elif event.get("method") == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def _receive(self):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], 60)
            assert ready, "the browser does not answer"
            data = os.read(self._read, 1 << 20)
            assert data, f"the browser has ended with {self._process.poll()}"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)
