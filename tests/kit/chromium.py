"""A page in headless Chromium, driven over its DevTools protocol: what it loads, what it says, how it looks."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import trio
from trio_websocket import open_websocket_url

__all__ = ["Page", "opened"]

DEADLINE = 30


class Page:
    """A page of a browser.

    Attributes:
        requests: The URLs that it has asked for.
        complaints: What it wrote to the console, and what the browser had to say.
    """

    def __init__(self, socket: Any, session: str | None = None) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._socket = socket
        self._session = {} if session is None else {"sessionId": session}
        self._ids = itertools.count(1)
        self._loaded = False

    async def do(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command, and return its result; events that come before it are noted."""
        number = next(self._ids)
        await self._socket.send_message(json.dumps({"id": number, "method": method, "params": params, **self._session}))
        while True:
            message = await self._next()
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    async def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(await self._socket.get_message())
        match message:
            case {"method": "Network.requestWillBeSent", "params": {"request": {"url": url}}}:
                self.requests.append(url)
            case {"method": "Log.entryAdded" | "Runtime.consoleAPICalled" | "Runtime.exceptionThrown"}:
                self.complaints.append(json.dumps(message["params"]))
            case {"method": "Page.loadEventFired"}:
                self._loaded = True
        return message

    async def show(self, url: str, *, width: int, scheme: str) -> None:
        """Show a page at a width, in the light or the dark scheme."""
        self._loaded = False
        await self.do("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        await self.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        await self.do("Page.navigate", url=url)
        while not self._loaded:
            await self._next()

    async def value_of(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript."""
        found = await self.do("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    async def picture(self, **clip: float) -> bytes:
        """Return a PNG of the whole page, or of a part of it."""
        part = {"clip": {"scale": 1, **clip}} if clip else {}
        found = await self.do("Page.captureScreenshot", captureBeyondViewport=True, **part)
        return base64.b64decode(found["data"])


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Page]:
    """Open a browser with a profile of its own, and a page in it."""
    with trio.fail_after(DEADLINE), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "about:blank"]
        process = await trio.lowlevel.open_process(
            [*command, f"--user-data-dir={profile}", "--remote-debugging-port=0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            address = await _address(process)
            async with trio.open_nursery() as nursery, open_websocket_url(address, max_message_size=2**26) as socket:
                nursery.start_soon(_drain, process)
                yield await _page(socket)
                nursery.cancel_scope.cancel()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            with trio.CancelScope(shield=True):
                await process.wait()


async def _address(process: trio.Process) -> str:
    assert process.stderr is not None
    said = b""
    # "DevTools listening on ws://127.0.0.1:PORT/devtools/browser/ID"
    while b"ws://" not in said or not said.endswith(b"\n"):
        said += await process.stderr.receive_some()
    return f"ws://{said.partition(b'ws://')[2].split()[0].decode()}"


async def _drain(process: trio.Process) -> None:
    assert process.stderr is not None
    async for _ in process.stderr:
        pass


async def _page(socket: Any) -> Page:
    browser = Page(socket)
    targets = (await browser.do("Target.getTargets"))["targetInfos"]
    target = next(each["targetId"] for each in targets if each["type"] == "page")
    session = (await browser.do("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
    page = Page(socket, session)
    for domain in ("Page", "Network", "Runtime", "Log"):
        await page.do(f"{domain}.enable")
    return page
