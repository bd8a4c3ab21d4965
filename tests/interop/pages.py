"""Pages in headless Chromium, and what they find."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import h11
import trio

__all__ = ["FOREIGN", "Pages", "chromium"]

FOREIGN = "http://evil.example"
"""An origin, but for the port, of which the browser believes that it is on this machine."""

OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--host-resolver-rules=MAP evil.example 127.0.0.1",
    # It must not ask its maker for anything.
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Pages:
    """A server of one page, which gets what the page has found.

    Args:
        page: The page. What it has to do takes the place of ``%s``, and what it has found it posts to ``/found``.
    """

    def __init__(self, page: str) -> None:
        self._page = page
        self.task: dict[str, Any] = {}
        self.port = 0
        self.opened = 0
        self._found, self._findings = trio.open_memory_channel[Any](1)

    async def visit(self, host: str = "http://127.0.0.1", **task: Any) -> Any:
        """Open the page in a browser, and return its findings.

        Args:
            host: The page's origin, but for the port.
            task: What the page does.
        """
        self.task = task
        async with chromium(f"{host}:{self.port}/"):
            return await self.found()

    async def found(self) -> Any:
        """Return what a page has found."""
        return await self._findings.receive()

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve on a port of its own."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        await trio.serve_listeners(self.answer, listeners, task_status=task_status)

    async def answer(self, stream: trio.SocketStream) -> None:
        """Answer one request."""
        async with stream:
            connection = h11.Connection(h11.SERVER)
            target, posted, body = b"", b"", b""
            while not isinstance(event := connection.next_event(), (h11.EndOfMessage, h11.ConnectionClosed)):
                if event is h11.NEED_DATA:
                    connection.receive_data(await stream.receive_some())
                elif isinstance(event, h11.Request):
                    target = event.target
                elif isinstance(event, h11.Data):
                    posted += event.data
            if target == b"/found":
                await self._found.send(json.loads(posted))
            elif target == b"/":
                self.opened += 1
                body = (self._page % json.dumps(self.task)).encode()
            await stream.send_all(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
                % (len(body), body)
            )


@contextlib.asynccontextmanager
async def chromium(url: str) -> AsyncIterator[None]:
    """Open a page, whatever its host under this machine's address, in a browser with a profile of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = ["chromium", *OPTIONS, f"--user-data-dir={profile}", url]
        process = await trio.lowlevel.open_process(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # it has started others
            with trio.CancelScope(shield=True):
                await process.wait()
