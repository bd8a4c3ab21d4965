"""Fixtures that the tests of the transports request by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from trio.testing import MockClock

from trio_mcp.http.client import wire
from trio_mcp.http.client.sending import on_httpx
from trio_mcp.http.client.sending.on_httpx import proxied_sender


@pytest.fixture
def autojump_clock() -> MockClock:
    """A clock that jumps when nothing happens, after a moment for data on its way through the kernel."""
    return MockClock(autojump_threshold=0.05)


@pytest.fixture(scope="module", params=["transports", "client"])
def every_sender(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run each test on a link's default transports, and on the client that goes through proxies."""
    with pytest.MonkeyPatch.context() as patch:
        # The servers of the tests are on this machine, for which there is no proxy.
        if request.param == "client":
            patch.setattr(wire, "proxy_of", lambda url: "http://proxy.example")
            patch.setattr(on_httpx, "proxied_sender", lambda proxy: proxied_sender(None))
        yield


@pytest.fixture
def no_wait(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resume streams of the legacy era at once."""
    if request.node.get_closest_marker("legacy"):
        monkeypatch.setattr("trio_mcp.http.client.legacy.session_keeper.MIN_WAIT", 0.0)
