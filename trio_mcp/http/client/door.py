"""The only entry to the folder `legacy`, which adds the legacy era over HTTP and may be absent."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Mapping
from typing import Any, Final

import trio

from trio_mcp.errors import TransportError
from trio_mcp.http.client.auth import Auth
from trio_mcp.http.client.posting import Remote, SessionKeeper, SessionView
from trio_mcp.http.client.sending.sender import AsyncHttpClient
from trio_mcp.jsonrpc.messages import Notification, Request
from trio_mcp.link import Link

__all__ = ["session_keeper", "sse_client"]

_LEGACY: Final = "trio_mcp.http.client.legacy"
_ABSENT: Final = "this installation does not support the legacy era over HTTP"


def session_keeper(remote: Remote) -> SessionKeeper:
    """Return the keeper of a link's sessions; without the folder `legacy`, one that refuses all legacy requests."""
    module = _module("session_keeper")
    keeper: SessionKeeper = NoSessions() if module is None else module.LegacySessions(remote)
    return keeper


def sse_client(
    url: str, *, headers: Mapping[str, str], auth: Auth | None = None, http_client: AsyncHttpClient | None = None
) -> contextlib.AbstractAsyncContextManager[Link]:
    """Connect to a server over HTTP+SSE.

    Raises:
        TransportError: If the folder `legacy` does not exist.
    """
    module = _module("sse_client")
    if module is None:
        raise TransportError(f"HTTP+SSE is not available: {_ABSENT}")
    link: contextlib.AbstractAsyncContextManager[Link] = module.sse_client(
        url, headers=headers, auth=auth, http_client=http_client
    )
    return link


# `before` is called only for requests that name no modern revision, and an installation without the folder can't send
# such requests.
class NoSessions:
    """The stand-in for the keeper of a link's sessions if the folder `legacy` does not exist."""

    session: SessionView | None = None

    async def before(self, request: Request) -> SessionView | None:
        """Refuse a request of the legacy era."""
        raise TransportError(f"{request.method!r} was not sent: {_ABSENT}, and the server may support nothing else")

    def announcing(self, done: trio.Event) -> None:
        """Do nothing, because there are no sessions."""

    async def announce(self, notification: Notification) -> None:
        """Do nothing, because there are no sessions."""

    async def end(self) -> None:
        """Do nothing, because there are no sessions."""


def _module(name: str) -> Any:
    """Import a module of the folder `legacy`; return None if there is no such folder."""
    # The module is imported by its name, because `lint-imports` allows no import statement for that folder in this
    # module.
    if importlib.util.find_spec(_LEGACY) is None:
        return None
    return importlib.import_module(f"{_LEGACY}.{name}")
