"""A headless Chromium, driven over its own protocol: no package is needed for it."""

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
AXE = Path(__file__).parents[1] / ".axe/node_modules/axe-core/axe.min.js"
"""The accessibility rules, which `make axe` fetches by npm."""
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def program() -> str | None:
    """Return the browser of this machine, None where there is none."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Browser:
    """One page in one browser; commands wait for their answer, events are kept."""

    def __init__(self, folder: Path) -> None:
        found = program()
        assert found is not None
        (to_read, self._write), (self._read, to_write) = os.pipe(), os.pipe()

        def hand_over() -> None:
            # The protocol is spoken over descriptors 3 and 4.
            reading = fcntl.fcntl(to_read, fcntl.F_DUPFD, 10)
            writing = fcntl.fcntl(to_write, fcntl.F_DUPFD, 10)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        self._process = subprocess.Popen(
            [found, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=hand_over,  # noqa: PLW1509 - it runs four system calls and no Python lock
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self._session = b"", 0, None
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._read, 1 << 20)
            assert data, "the browser is gone"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def run(self, script: str) -> Any:
        """Evaluate JavaScript; a promise is waited for."""
        answer = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, page: Path) -> None:
        """Open a page and wait until it has drawn itself."""
        self.visit(page.as_uri())

    def visit(self, url: str) -> None:
        """Open what is at an address, as `open` does."""
        self.send("Page.navigate", url=url)
        self.settle()

    def settle(self) -> None:
        """Wait until the page has nothing left to do: it says so itself."""
        self.run(
            "new Promise(done => { const look = () => document.documentElement?.dataset.ready"
            " ? done(1) : setTimeout(look, 10); look(); })"
        )

    def window(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Make the window so wide, a phone's where it is narrow, and choose its colours."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def axe(self) -> list[str]:
        """Return what axe-core finds serious or critical in the page: rule and element."""
        self.run(AXE.read_text(encoding="utf-8"))
        return self.run(
            "axe.run(document).then(found => found.violations"
            ".filter(v => ['serious', 'critical'].includes(v.impact))"
            ".flatMap(v => v.nodes.map(n => `${v.id}: ${n.html} ${n.failureSummary}`)))"
        )

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, **text)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        os.close(self._write)
        os.close(self._read)
