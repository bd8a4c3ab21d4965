"""Where a requirement is tested: a transport, a revision, and the two ends."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import attrs

from tests import forks
from tests.peer import Peer
from tests.requirements.model import Topic
from tests.ways import APART, WAYS, Way, link_to
from trio_mcp import Client, StdioServerParameters
from trio_mcp._nursery import background_nursery
from trio_mcp.http.server.options import RUNNERS
from trio_mcp.low_level import Link, memory_link_pair, stdio_client, streamable_http_client
from trio_mcp.types.versions import LATEST_LEGACY, LATEST_MODERN, LEGACY_REVISIONS, REVISIONS

__all__ = ["TRANSPORTS", "Case"]


@contextlib.asynccontextmanager
async def in_memory(topic: Topic) -> AsyncIterator[Link]:
    """Both ends in this process, with full encoding."""
    assert topic.server is not None
    async with memory_link_pair(encode=True) as (ours, theirs), background_nursery() as nursery:
        await nursery.start(topic.server().serve, theirs)
        yield ours


def over_stdio(topic: Topic) -> contextlib.AbstractAsyncContextManager[Link]:
    """A process per connection."""
    command, *arguments = forks.command("tests.requirements.serve", "tests.requirements.serve", *forks.LOADED)
    return stdio_client(StdioServerParameters(command, [*arguments, topic.module]))


@contextlib.asynccontextmanager
async def over_http(topic: Topic, runner: str = RUNNERS[0]) -> AsyncIterator[Link]:
    """Our server on one of its runners, and our link on httpx, over a socket."""
    assert topic.server is not None
    async with background_nursery() as nursery:
        url = await nursery.start(partial(topic.server().serve_http, port=0, runner=runner))
        async with streamable_http_client(url) as link:
            yield link


@contextlib.asynccontextmanager
async def over(topic: Topic, way: Way) -> AsyncIterator[Link]:
    """Our server and our link, over a socket."""
    assert topic.server is not None
    async with way(topic.server()) as url, link_to(url) as link:
        yield link


@attrs.frozen
class Transport:
    """How a client's link reaches the server of a topic, the revisions tried over it, and whether apart from others."""

    connect: Callable[[Topic], contextlib.AbstractAsyncContextManager[Link]]
    revisions: tuple[str, ...] = (LATEST_LEGACY, LATEST_MODERN)
    apart: bool = False


TRANSPORTS = {
    "memory": Transport(in_memory, REVISIONS),
    "stdio": Transport(over_stdio),
    "http": Transport(over_http),
    **{f"http on {name}": Transport(partial(over_http, runner=name), apart=True) for name in RUNNERS[1:]},
    **{name: Transport(partial(over, way=way), apart=name in APART) for name, way in WAYS.items()},
}


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
        async with Client(partial(self.transport.connect, self.topic), **{"mode": self.revision, **options}) as client:
            yield client

    @contextlib.asynccontextmanager
    async def greeting(self, **capabilities: Any) -> AsyncIterator[Peer]:
        """Yield a hand-driven client that has sent nothing yet."""
        async with self.transport.connect(self.topic) as link:
            yield Peer(link, self.revision, capabilities)

    @contextlib.asynccontextmanager
    async def hand(self, **capabilities: Any) -> AsyncIterator[Peer]:
        """Yield a hand-driven client; in the legacy era its handshake is done."""
        async with self.greeting(**capabilities) as hand:
            await hand.initialize()
            yield hand
