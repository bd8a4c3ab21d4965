"""A server with pages, and views that speak with a host over a link in memory."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import attrs
import trio
import trio.testing

from trio_mcp import Client, McpError, Notification, Server
from trio_mcp.extensions import AppHost, Apps, Csp
from trio_mcp.low_level import BaseSession, Link, RequestContext, memory_link_pair

__all__ = ["ERAS", "HELLO", "Scene", "View", "client_of", "clock", "shown"]

ERAS = ["2025-11-25", "2026-07-28"]

HELLO = {"protocolVersion": "2026-01-26", "appInfo": {"name": "view", "version": "1"}, "appCapabilities": {}}


class View(BaseSession):
    """A view: notes what the host says, and responds to its teardown.

    Attributes:
        heard: What the host has sent: methods with their parameters.
        stubborn: Whether it never responds to the teardown.
    """

    def __init__(self, link: Link) -> None:
        super().__init__(*link)
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.stubborn = False
        self._more = trio.Event()

    async def received_request(self, context: RequestContext) -> Any:
        self._hear(context.method, context.params)
        if self.stubborn:
            await trio.sleep_forever()

    async def received_notification(self, notification: Notification) -> None:
        self._hear(notification.method, notification.params or {})

    def _hear(self, method: str, params: dict[str, Any]) -> None:
        self.heard.append((method.rpartition("/")[2], params))
        self._more.set()
        self._more = trio.Event()

    async def greet(self, **changes: Any) -> dict[str, Any]:
        """Initialize, and return the host's result."""
        result = await self.send_request("ui/initialize", HELLO | changes)
        await self.send_notification("ui/notifications/initialized")
        return result

    async def hear(self, method: str) -> dict[str, Any]:
        """Wait for what the host sends with this method, and return the parameters of the last one."""
        while method not in self.methods:
            await self._more.wait()
        return dict(self.heard)[method]

    @property
    def methods(self) -> list[str]:
        """The methods that the host has sent, without ``ui/notifications/``."""
        return [method for method, _ in self.heard]

    async def ask(self, method: str, **params: Any) -> dict[str, Any] | int:
        """Return the result of a request, or the code of the error."""
        try:
            return await self.send_request(method, params)
        except McpError as exc:
            return exc.code


@attrs.define
class Scene:
    """A host that serves a view.

    Attributes:
        host: The host.
        view: The view.
        served: Set when `AppHost.serve` has returned.
        scope: The scope around it.
    """

    host: AppHost
    view: View
    served: trio.Event
    scope: trio.CancelScope


@contextlib.asynccontextmanager
async def shown(host: AppHost, *, encode: bool = True, sandbox: bool = False) -> AsyncIterator[Scene]:
    """Serve a view of a host; the view has not initialized itself yet."""
    async with memory_link_pair(encode=encode) as (ours, theirs), trio.open_nursery() as nursery:
        async with host, View(theirs) as view:
            scene = Scene(host, view, trio.Event(), trio.CancelScope())

            async def serve() -> None:
                with scene.scope:
                    await host.serve(ours, sandbox=sandbox)
                scene.served.set()

            nursery.start_soon(serve)
            await trio.testing.wait_all_tasks_blocked()
            yield scene
            await host.teardown("the end")
        await scene.served.wait()


def clock(**settings: Any) -> Server:
    """Return a server with a page, and tools for the model, for pages, and for both."""
    apps = Apps()
    server = Server("clock", extensions=[apps], **settings)
    server_calls: list[str] = []
    server.called = server_calls  # type: ignore[attr-defined]

    @apps.page(
        "ui://clock/face", csp=Csp(connect=["https://time.example"]), permissions=["camera"], prefers_border=True
    )
    def face() -> str:
        """The face of a clock."""
        return "<!doctype html><p>clock</p>"

    @server.tool(app="ui://clock/face")
    async def show(zone: str = "UTC") -> dict[str, int]:
        server_calls.append("show")
        return {"hour": 3}

    @server.tool(app="ui://clock/face")
    async def never(zone: str = "UTC") -> str:
        server_calls.append("never")
        try:
            await trio.sleep_forever()
        finally:
            server_calls.append("never was cancelled")
        raise AssertionError

    @server.tool(app="ui://clock/face")
    async def fails() -> str:
        raise McpError(-32050, "the clock has stopped")

    @server.tool(visibility=["app"])
    async def now() -> str:
        server_calls.append("now")
        return "3 o'clock"

    @server.tool(visibility=["model"])
    async def secret() -> str:
        server_calls.append("secret")
        return "secret"

    @server.tool
    async def plain() -> str:
        return "plain"

    @server.resource("time://zone")
    def zone() -> str:
        return "UTC"

    return server


def client_of(server: Server, **settings: Any) -> Client:
    """Return a host's client of a server."""
    return Client(server, extensions=[Apps()], **settings)
