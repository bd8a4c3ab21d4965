"""The door to the legacy era over HTTP: the only module that knows of `trio_mcp.http.server.legacy`.

Without that folder the modern revisions are served, and requests of the legacy era are refused as a server refuses
them that serves modern revisions alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from trio_mcp.http.rules.statuses import Accept, Opening, Refusal, refuse
from trio_mcp.http.server.asgi import Held, HttpAnswer, HttpRequest, Ledger, NoRoom
from trio_mcp.http.server.host import Run
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.http.server.statistics import HttpStatistics
from trio_mcp.jsonrpc.messages import ErrorData, Malformed, RequestId
from trio_mcp.types.error_codes import OVERLOADED

__all__ = ["LegacyEndpoint", "ReadBody", "ending", "legacy_endpoint", "no_room"]

LEGACY = "trio_mcp.http.server.legacy"

ReadBody: TypeAlias = Callable[[], Awaitable[bytes | None]]
"""Gives the body of a request; None if that was refused, or the client has left."""


class LegacyEndpoint:
    """What serves the legacy era at an endpoint. This one serves nothing of it, in the place of a missing folder."""

    served = False
    """Whether there is anything of that era."""

    def find_session(self, session_id: str, request_id: RequestId | None) -> str | Refusal:
        """Give the revision of a session, or the 404 of one that is lost.

        Args:
            session_id: The session that is named.
            request_id: The request that names it.
        """
        return refuse(404, "there are no sessions", request_id)

    async def post(self, accepted: Accept, request: HttpRequest, answer: HttpAnswer, held: Held) -> None:
        """Serve a POST; what of it outlives that keeps it held."""

    async def get(self, opening: Opening, request: HttpRequest, answer: HttpAnswer) -> None:
        """Serve a GET, for a stream."""

    async def delete(self, opening: Opening, answer: HttpAnswer) -> None:
        """Serve a DELETE: the session ends."""

    async def replay(self, refusal: Refusal, request: HttpRequest, answer: HttpAnswer) -> bool:
        """Answer what the rules have refused with what a store still has of a session that is gone.

        Returns:
            Whether there was anything: else the refusal is the answer.
        """
        return False

    def take_broken_answer(self, message: Malformed, session_id: str | None) -> None:
        """Let an answer that is none fail the call that it was for."""

    def method_at(self, path: str) -> str | None:
        """The HTTP method that a path besides the endpoint takes; None where nothing is."""
        return None

    async def serve_at(
        self, request: HttpRequest, answer: HttpAnswer, body: ReadBody, ledger: Ledger
    ) -> Refusal | None:
        """Serve a request to such a path, unless it has to be refused."""
        return None

    def end(self) -> None:
        """Take no more work, and end every stream that would never end by itself."""

    async def idle(self) -> None:
        """Wait until no handler of a session runs."""

    def cut(self, why: str) -> None:
        """End every session."""

    def statistics(self) -> HttpStatistics:
        """What it is doing, which is a part of what the endpoint does."""
        return HttpStatistics()


def no_room(exc: NoRoom) -> Refusal:
    """Refuse what there is no room for."""
    return _later(f"too much at once: {exc}; try again later")


def ending() -> Refusal:
    """Refuse new work."""
    return _later("the server is ending")


def _later(text: str) -> Refusal:
    return refuse(503, ErrorData(OVERLOADED, text), headers=(("Retry-After", "1"),))


def legacy_endpoint(run: Run, options: HttpOptions) -> LegacyEndpoint:
    """Give what serves the legacy era.

    Raises:
        RuntimeError: The folder is missing, and the options ask for what is in it.
    """
    try:
        legacy = importlib.import_module(f"{LEGACY}.endpoint")
    except ModuleNotFoundError as exc:
        if exc.name is None or not exc.name.startswith(LEGACY):
            raise
        if options.sse_path is not None:
            raise RuntimeError(f"sse_path needs {LEGACY}, which is not installed") from None
        return LegacyEndpoint()
    endpoint: LegacyEndpoint = legacy.Endpoint(run, options)
    return endpoint
