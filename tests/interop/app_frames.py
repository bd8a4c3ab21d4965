"""A host's page in headless Chromium: two nested frames of two origins, the inner one opaque, and a WebSocket to
`AppHost`."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import h11
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, serve_websocket

from trio_mcp.extensions import AppHost
from trio_mcp.jsonrpc.codec import decode, encode
from trio_mcp.low_level import Link, SessionMessage, memory_link_pair

from .pages import chromium

__all__ = ["Frames", "bundled_sdk"]

HOST_PAGE = r"""
<!doctype html>
<script>
window.token = "secret of the host";
localStorage.setItem("token", window.token);
// One connection for each page that is shown. The first message says where the sandbox proxy is.
function show() {
  const socket = new WebSocket("%(socket)s");
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts allow-same-origin");
  let opened = false;
  const forward = ({ data, source, origin }) => {
    if (source === frame.contentWindow && origin === "%(sandbox)s") socket.send(JSON.stringify(data));
  };
  addEventListener("message", forward);
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (opened) return frame.contentWindow.postMessage(message, "%(sandbox)s");
    opened = true;
    frame.allow = message.allow;
    frame.src = message.open;
    document.body.append(frame);
  };
  socket.onclose = () => {
    removeEventListener("message", forward);
    frame.remove();
    show();
  };
}
show();
</script>
"""

SANDBOX_PAGE = r"""
<!doctype html>
<script>
// The proxy forwards everything but what is meant for itself (SEP-1865, Sandbox proxy, 6).
const mine = (data) => typeof data?.method === "string" && data.method.startsWith("ui/notifications/sandbox-");
let view;
addEventListener("message", ({ data, source, origin }) => {
  if (source === view?.contentWindow) {
    if (!mine(data)) parent.postMessage(data, "%(host)s");
  } else if (source === parent && origin === "%(host)s") {
    if (!mine(data)) return view.contentWindow.postMessage(data, "*");
    view = document.createElement("iframe");
    view.setAttribute("sandbox", "%(inner)s");
    view.srcdoc = data.params.html;
    let loads = 0;  // the second one is that of another document, or of an error
    view.onload = () => ++loads === 2 && parent.postMessage({ jsonrpc: "2.0", method: "test/left" }, "%(host)s");
    document.body.append(view);
  }
});
parent.postMessage({ jsonrpc: "2.0", method: "ui/notifications/sandbox-proxy-ready", params: {} }, "%(host)s");
</script>
"""


def bundled_sdk(modules: Path) -> str:
    """Return the official view SDK as the text of a module that sets ``App``."""
    folder = modules / "node_modules" / "@modelcontextprotocol" / "ext-apps" / "dist" / "src"
    text = (folder / "app-with-deps.js").read_text()
    head, found, exports = text.rpartition("export{")
    name = re.search(r"([\w$]+) as App\b", exports)
    assert found
    assert name is not None
    return f"{head}\nconst App = {name[1]};\n".replace("</script", "<\\/script")


class Frames:
    """A browser with a host's page, which shows one view after another.

    Attributes:
        asked: The targets of the requests that came to the host's origin, besides its page.
        left: Set when a page has tried to navigate elsewhere.
        lenient: Serve the sandbox proxy without a policy, and give the view its origin: a control for attacks.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.left = trio.Event()
        self.lenient = False
        self._csp = ""
        self._opened, self._connections = trio.open_memory_channel[WebSocketConnection](0)
        self._origins: dict[str, str] = {}

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Frames]:
        """Open the browser."""
        async with trio.open_nursery() as nursery:
            for name, answer in (("host", self._answer_host), ("sandbox", self._answer_sandbox)):
                listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
                self._origins[name] = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
                await nursery.start(trio.serve_listeners, answer, listeners)
            server = await nursery.start(partial(serve_websocket, self._connected, "127.0.0.1", 0, None))
            self._origins["socket"] = f"ws://127.0.0.1:{server.port}"
            async with chromium(f"{self.origin}/"):
                yield self
            nursery.cancel_scope.cancel()

    @property
    def origin(self) -> str:
        """The origin of the host's page."""
        return self._origins["host"]

    @contextlib.asynccontextmanager
    async def link(self, host: AppHost) -> AsyncIterator[Link]:
        """Load the page of a host in the browser, and yield the link to its view."""
        connection = await self._connections.receive()
        self._csp = host.csp
        await connection.send_message(json.dumps({"open": f"{self._origins['sandbox']}/", "allow": host.allow}))
        async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:
            nursery.start_soon(self._inward, connection, theirs)
            nursery.start_soon(_outward, connection, theirs)
            try:
                yield ours
            finally:
                with trio.CancelScope(shield=True), trio.move_on_after(1):
                    await connection.aclose()
                nursery.cancel_scope.cancel()

    async def _inward(self, connection: WebSocketConnection, link: Link) -> None:
        with contextlib.suppress(ConnectionClosed, trio.BrokenResourceError, trio.ClosedResourceError):
            while True:
                text = await connection.get_message()
                if "test/left" in text:
                    self.left.set()
                await link.write.send(SessionMessage(decode(text.encode())))
        await link.write.aclose()

    async def _connected(self, request: WebSocketRequest) -> None:
        connection = await request.accept()
        await self._opened.send(connection)
        await connection._close_handshake.wait()  # noqa: SLF001 - trio-websocket has no public way to wait for it

    async def _answer_host(self, stream: trio.SocketStream) -> None:
        target = await _target(stream)
        if target != "/":
            self.asked.append(target)
        await _respond(stream, HOST_PAGE % self._origins if target == "/" else "", {})

    async def _answer_sandbox(self, stream: trio.SocketStream) -> None:
        await _target(stream)
        inner = "allow-scripts allow-same-origin allow-forms" if self.lenient else "allow-scripts"
        page = SANDBOX_PAGE % {**self._origins, "inner": inner}
        await _respond(stream, page, {} if self.lenient else {"Content-Security-Policy": self._csp})


async def _outward(connection: WebSocketConnection, link: Link) -> None:
    with contextlib.suppress(ConnectionClosed, trio.ClosedResourceError):
        async for item in link.read:
            await connection.send_message(encode(item.message).decode())


async def _target(stream: trio.SocketStream) -> str:
    connection = h11.Connection(h11.SERVER)
    while not isinstance(event := connection.next_event(), h11.Request):
        if event is not h11.NEED_DATA:
            return ""
        connection.receive_data(await stream.receive_some())
    return event.target.decode()


async def _respond(stream: trio.SocketStream, page: str, headers: dict[str, Any]) -> None:
    body = page.encode()
    lines = ["HTTP/1.1 200 OK", "Content-Type: text/html", "Connection: close", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with contextlib.suppress(trio.BrokenResourceError):
        await stream.send_all("\r\n".join([*lines, "", ""]).encode() + body)
    await stream.aclose()
