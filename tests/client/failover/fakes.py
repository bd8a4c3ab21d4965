"""Ways to a server in memory, which a test can break."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import trio

from trio_mcp import Server, TransportError
from trio_mcp.client.targets import link_factory
from trio_mcp.convert import another
from trio_mcp.jsonrpc.messages import Incoming, Notification, Request, SessionMessage, TransportFailure
from trio_mcp.link import Link
from trio_mcp.testing import FaultLinks

__all__ = ["Broken", "ExchangeWay", "Fault", "Way"]


class Fault(TransportError):
    """A failure that a test has made."""


class Way(FaultLinks):
    """A target: each connection is a new one to the same server.

    Attributes:
        server: What new connections lead to.
        passed: The messages that the client has sent, over all connections.
    """

    def __init__(self, server: Server, name: str) -> None:
        super().__init__(lambda: link_factory(self.server)(), on_sent=lambda item: self.passed.append(item.message))
        self.server, self.name = server, name
        self.passed: list[Any] = []

    @property
    def opened(self) -> int:
        """How often it was connected."""
        return self.statistics().connections

    @property
    def open(self) -> int:
        """How many connections are open."""
        return self.statistics().live

    def down(self) -> None:
        """Refuse new connections, and break the open one."""
        self.refuse(Fault(f"{self.name} is down"))
        self.cut()

    def cut(self) -> None:
        """Break the open connection; new ones are let in."""
        self.reset(Fault(f"{self.name} is cut"))


class Broken(TransportError):
    """The failure of one exchange, as over HTTP."""


class ExchangeWay(Way):
    """A way on which calls of tools fail one by one, as over HTTP, while the link goes on.

    Attributes:
        failing: How many more calls fail.
        reached: Whether they reach the server.
        error: What they fail with.
        crossing: Makes what comes for a request as its cancellation leaves, given its id, if anything does.
    """

    failing, reached = 0, True
    crossing: Callable[[Any], Incoming] | None = None
    error: Exception = Broken("the connection broke")

    def takes(self, request: Request) -> bool:
        """Say whether a request reaches the server; one that does not is lost."""
        return True

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[Link]:
        async with super().__call__() as link, trio.open_nursery() as nursery:
            near, read = trio.open_memory_channel[SessionMessage](64)
            write, far = trio.open_memory_channel[SessionMessage](64)

            async def there() -> None:
                async for item in far:
                    message = item.message
                    if isinstance(message, Request) and not self.takes(message):
                        continue
                    if isinstance(message, Request) and message.method == "tools/call" and self.failing:
                        self.failing -= 1
                        error = another(self.error)
                        if isinstance(error, Broken):
                            error.sent = self.reached
                        await near.send(SessionMessage(TransportFailure(error, message.id)))
                        continue
                    cancels = isinstance(message, Notification) and message.method == "notifications/cancelled"
                    if cancels and self.crossing is not None:
                        await near.send(SessionMessage(self.crossing(message.params["requestId"])))
                    await link.write.send(item)

            async def back() -> None:
                async for item in link.read:
                    await near.send(item)

            nursery.start_soon(there)
            nursery.start_soon(back)
            yield Link(read, write)
            nursery.cancel_scope.cancel()
