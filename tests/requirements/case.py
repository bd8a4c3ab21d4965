"""Where a requirement is tested: a transport, a revision, and the two ends."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import attrs
import trio

from tests import forks
from tests.peer import Peer, played
from tests.requirements.http_script import scripted_http
from tests.requirements.model import Topic
from trio_mcp import (
    Client,
    Link,
    SessionMessage,
    StdioServerParameters,
    memory_link_pair,
    stdio_client,
    streamable_http_client,
)
from trio_mcp._nursery import background_nursery
from trio_mcp.jsonrpc.codec import LineDecoder
from trio_mcp.jsonrpc.messages import Request
from trio_mcp.link import BUFFER
from trio_mcp.stdio.lines import read_lines, write_lines
from trio_mcp.types.versions import LATEST_LEGACY, LATEST_MODERN, LEGACY_REVISIONS, REVISIONS

__all__ = ["TRANSPORTS", "Case", "Script"]

HERE = Path(__file__).parent

Script = Callable[[Peer], Awaitable[None]]
LinkMaker = Callable[[], contextlib.AbstractAsyncContextManager[Link]]


class Transport(Protocol):
    """How a client's link reaches the server of a topic, or a script in this process."""

    revisions: tuple[str, ...]

    def server(self, topic: Topic) -> LinkMaker: ...

    def script(self, script: Script) -> LinkMaker: ...


class InMemory:
    """Both ends in this process, with full encoding; every revision."""

    revisions = REVISIONS

    def server(self, topic: Topic) -> LinkMaker:
        @contextlib.asynccontextmanager
        async def connect() -> AsyncIterator[Link]:
            assert topic.server is not None
            async with memory_link_pair(encode=True) as (ours, theirs), background_nursery() as nursery:
                await nursery.start(topic.server().serve, theirs)
                yield ours

        return connect

    def script(self, script: Script) -> LinkMaker:
        return played(script, encode=True)


class Stdio:
    """A process per connection, so the newest revision of each era has to do."""

    revisions = (LATEST_LEGACY, LATEST_MODERN)

    def server(self, topic: Topic) -> LinkMaker:
        command, *arguments = forks.command("tests.requirements.serve", "tests.requirements.serve", *forks.LOADED)
        return lambda: stdio_client(StdioServerParameters(command, [*arguments, topic.module]))

    def script(self, script: Script) -> LinkMaker:
        @contextlib.asynccontextmanager
        async def connect() -> AsyncIterator[Link]:
            with tempfile.TemporaryDirectory() as folder:
                address = str(Path(folder, "s"))
                async with background_nursery() as nursery:
                    await nursery.start(_listen, address, script)
                    relay = StdioServerParameters(sys.executable, ["-IS", str(HERE / "relay.py"), address])
                    async with stdio_client(relay) as link:
                        yield link

        return connect


async def _listen(address: str, script: Script, task_status: trio.TaskStatus[None]) -> None:
    """Act as the process that the relay stands for."""
    listener = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
    with listener:
        await listener.bind(address)
        listener.listen()
        task_status.started()
        stream = trio.SocketStream((await listener.accept())[0])
        inbound, read = trio.open_memory_channel[SessionMessage](BUFFER)
        write, outbound = trio.open_memory_channel[SessionMessage](BUFFER)
        async with stream, background_nursery() as nursery:
            nursery.start_soon(read_lines, stream, LineDecoder(), inbound)
            nursery.start_soon(write_lines, outbound, stream, inbound)
            await script(Peer(Link(read, write)))
            await trio.sleep_forever()


class Http:
    """Our server on hypercorn and our link on httpx, over a socket; a script behind a small HTTP server.

    What our client does against other people's and hostile HTTP servers has tests of its own in `tests/transports`.
    """

    revisions = (LATEST_LEGACY, LATEST_MODERN)

    def server(self, topic: Topic) -> LinkMaker:
        @contextlib.asynccontextmanager
        async def connect() -> AsyncIterator[Link]:
            assert topic.server is not None
            async with background_nursery() as nursery:
                url = await nursery.start(partial(topic.server().serve_http, port=0))
                async with streamable_http_client(url) as link:
                    yield link

        return connect

    def script(self, script: Script) -> LinkMaker:
        @contextlib.asynccontextmanager
        async def connect() -> AsyncIterator[Link]:
            async with scripted_http(script) as url, streamable_http_client(url) as link:
                yield link

        return connect


TRANSPORTS: dict[str, Transport] = {"memory": InMemory(), "stdio": Stdio(), "http": Http()}


@attrs.frozen
class Case:
    """One requirement, over one transport, in one revision."""

    topic: Topic
    transport: Transport
    revision: str

    @property
    def modern(self) -> bool:
        """Whether the revision is of the modern era."""
        return self.revision not in LEGACY_REVISIONS

    @contextlib.asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Client]:
        """Our client of the topic's server."""
        async with Client(self.transport.server(self.topic), **{"mode": self.revision, **options}) as client:
            yield client

    @contextlib.asynccontextmanager
    async def greeting(self, **capabilities: Any) -> AsyncIterator[Peer]:
        """Yield a hand-driven client that has sent nothing yet."""
        async with self.transport.server(self.topic)() as link:
            yield Peer(link, self.revision, capabilities)

    @contextlib.asynccontextmanager
    async def hand(self, **capabilities: Any) -> AsyncIterator[Peer]:
        """Yield a hand-driven client; in the legacy era its handshake is done."""
        async with self.greeting(**capabilities) as hand:
            await hand.initialize()
            yield hand

    @contextlib.asynccontextmanager
    async def scripted(self, script: Script, **options: Any) -> AsyncIterator[Client]:
        """Our client of a server that is a script; it must answer what opens the connection, too (see `opening`)."""
        async with Client(self.transport.script(script), **{"mode": self.revision, **options}) as client:
            yield client

    async def opening(self, wire: Peer, **capabilities: Any) -> Request:
        """Answer the request that opens the connection, and return that request."""
        wire.revision, wire.capabilities = self.revision, capabilities
        return await wire.greet()
