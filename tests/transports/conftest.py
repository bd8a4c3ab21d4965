"""Fixtures that the tests of the transports request by name."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest
from trio.testing import MockClock

from trio_mcp.http.client import wire
from trio_mcp.http.client.sending import on_httpx
from trio_mcp.http.client.sending.cookies import BoundedCookies
from trio_mcp.http.client.sending.on_httpx import HttpxSender, proxied_sender


@pytest.fixture
def autojump_clock() -> MockClock:
    """A clock that jumps when nothing happens, after a moment for data on its way through the kernel."""
    return MockClock(autojump_threshold=0.05)


@contextlib.asynccontextmanager
async def on_httpx2(proxy: str | None) -> AsyncIterator[HttpxSender]:
    """Open a sender on a client of httpx2, as a caller would pass it."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(limits=limits, cookies=BoundedCookies(), trust_env=False) as client:
        yield HttpxSender(client)


# The servers of the tests are on this machine, for which there is no proxy.
SENDERS = {"transports": None, "client": lambda proxy: proxied_sender(None), "httpx2": on_httpx2}


@pytest.fixture(scope="module", params=["transports", "client", pytest.param("httpx2", marks=pytest.mark.again)])
def every_sender(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run each test on a link's default transports, on the client that goes through proxies, and on httpx2."""
    with pytest.MonkeyPatch.context() as patch:
        if (opened := SENDERS[request.param]) is not None:
            patch.setattr(wire, "proxy_of", lambda url: "http://proxy.example")
            patch.setattr(on_httpx, "proxied_sender", opened)
        yield


@pytest.fixture
def no_wait(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resume streams of the legacy era at once."""
    if request.node.get_closest_marker("legacy"):
        monkeypatch.setattr("trio_mcp.http.client.legacy.session_keeper.MIN_WAIT", 0.0)
