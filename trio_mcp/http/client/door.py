"""The door to the legacy era over HTTP, which is the folder `legacy`; without that folder a link is modern only."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Mapping
from typing import Any, Final

import trio

from trio_mcp.errors import TransportError
from trio_mcp.http.client.posting import Remote, Session, SessionKeeper
from trio_mcp.jsonrpc.messages import Request
from trio_mcp.link import Link

__all__ = ["session_keeper", "sse_client"]

_LEGACY: Final = "trio_mcp.http.client.legacy"
_ABSENT: Final = "this installation does not speak the legacy era over HTTP"


def session_keeper(remote: Remote) -> SessionKeeper:
    """What keeps the sessions of a link."""
    module = _module("session_keeper")
    keeper: SessionKeeper = NoSessions() if module is None else module.LegacySessions(remote)
    return keeper


def sse_client(url: str, *, headers: Mapping[str, str]) -> contextlib.AbstractAsyncContextManager[Link]:
    """Connect to a server over HTTP+SSE.

    Raises:
        TransportError: That is not there.
    """
    module = _module("sse_client")
    if module is None:
        raise TransportError(f"there is no transport for HTTP+SSE: {_ABSENT}")
    link: contextlib.AbstractAsyncContextManager[Link] = module.sse_client(url, headers=headers)
    return link


class NoSessions:
    """What a link has in the place of sessions without the folder."""

    session: Session | None = None

    async def before(self, request: Request) -> Session | None:
        """Refuse a request of the legacy era."""
        raise TransportError(f"{request.method!r} was not sent: {_ABSENT}, and the server may speak nothing else")

    def announcing(self, done: trio.Event) -> None:
        """Do nothing."""

    async def end(self) -> None:
        """Do nothing."""


def _module(name: str) -> Any:
    """A module of the folder; None where there is no folder."""
    if importlib.util.find_spec(_LEGACY) is None:
        return None
    return importlib.import_module(f"{_LEGACY}.{name}")
