"""The door to the legacy era over HTTP: the only module that imports `trio_mcp.http.server.legacy`.

Without that folder the modern revisions are served as usual, and requests of the legacy era are refused, as they are by
a server that has only modern revisions.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from trio_mcp.http.rules.statuses import Accept, Opening, Refusal, refuse
from trio_mcp.http.server.asgi import CountedMessage, HttpAnswer, HttpRequest, Ledger, NoRoom, Owner
from trio_mcp.http.server.host import HostedRun
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.http.server.statistics import HttpStatistics
from trio_mcp.jsonrpc.messages import ErrorData, Incoming, Malformed, RequestId
from trio_mcp.types.error_codes import OVERLOADED

__all__ = ["Judge", "LegacyEndpoint", "ReadBody", "ending", "legacy_endpoint", "no_room"]

LEGACY = "trio_mcp.http.server.legacy"

Judge: TypeAlias = Callable[[Incoming], Refusal | None]
"""A function that checks the scopes for a message, and returns its refusal, if any; see `Gate.judge_message`."""

ReadBody: TypeAlias = Callable[[], Awaitable[bytes | None]]
"""A function that reads the body of a request; it returns None if the request was refused or the client has left."""


class LegacyEndpoint:
    """The object that serves the legacy era at an endpoint.

    This base class, which is used if the folder ``legacy`` is missing, serves nothing.
    """

    # `post`, `get` and `delete` of this class are never called: if no legacy revision is served, the transport's rules
    # have already refused such requests.

    served = False
    """Whether the legacy era is served."""

    shared = False
    """Whether other processes serve the same sessions."""

    def find_session(self, session_id: str, request_id: RequestId | None, owner: Owner | None = None) -> str | Refusal:
        """Return the revision of a session, or a refusal with status 404 if it is unknown or has ended.

        Args:
            session_id: The id of the session.
            request_id: The id of the request that names the session, for the refusal.
            owner: The owner on whose behalf the request is made: for anyone else, the session does not exist.
        """
        return refuse(404, "this server keeps no sessions", request_id)

    async def prepare(self, request: HttpRequest) -> Refusal | None:
        """Learn of the session that a request names, if another process has begun it.

        Returns:
            A refusal if that is not possible now.
        """
        return None

    async def post(self, accepted: Accept, request: HttpRequest, answer: HttpAnswer, held: CountedMessage) -> None:
        """Serve a POST. Work that outlives this call adds a reference to ``held``."""

    async def get(self, opening: Opening, request: HttpRequest, answer: HttpAnswer) -> None:
        """Serve a GET, which opens or resumes a stream."""

    async def delete(self, opening: Opening, answer: HttpAnswer) -> None:
        """Serve a DELETE, which ends the session."""

    async def replay(self, refusal: Refusal, request: HttpRequest, answer: HttpAnswer) -> bool:
        """Respond to a refused request with the events of an ended session that are still stored.

        Returns:
            Whether there were such events; if not, the caller sends the refusal.
        """
        return False

    async def take_broken_answer(self, message: Malformed, request: HttpRequest) -> Refusal | None:
        """Fail the call for which a malformed response was meant.

        Returns:
            A refusal if that is not possible now.
        """
        return None

    def method_at(self, path: str) -> str | None:
        """Return the HTTP method that a path of HTTP+SSE accepts, or None if nothing is served there."""
        return None

    async def serve_at(
        self, request: HttpRequest, answer: HttpAnswer, body: ReadBody, ledger: Ledger, judge: Judge | None = None
    ) -> Refusal | None:
        """Serve a request to a path of HTTP+SSE, or return why it is refused."""
        return None

    def end(self) -> None:
        """Refuse new work, and end every stream that would never end by itself."""

    async def idle(self) -> None:
        """Wait until no handler of a session is running."""

    def cut(self, why: str) -> None:
        """End every session."""

    def statistics(self) -> HttpStatistics:
        """Return the legacy era's part of the endpoint's statistics."""
        return HttpStatistics()


def no_room(exc: NoRoom) -> Refusal:
    """Return the refusal of a message for which there is no room."""
    return _later(f"the server has too much work under way: {exc}; try again later")


def ending() -> Refusal:
    """Return the refusal of new work while the server is ending."""
    return _later("the server is ending")


def _later(text: str) -> Refusal:
    # One second is an arbitrary choice.
    return refuse(503, ErrorData(OVERLOADED, text), headers=(("Retry-After", "1"),))


def legacy_endpoint(run: HostedRun, options: HttpOptions) -> LegacyEndpoint:
    """Return the object that serves the legacy era at an endpoint.

    Raises:
        RuntimeError: If the options ask for HTTP+SSE, but the legacy folder is missing.
    """
    if importlib.util.find_spec(LEGACY) is None:
        if options.settings["sse_path"] is not None:
            raise RuntimeError(f"sse_path needs {LEGACY}, which is not installed")
        return LegacyEndpoint()
    # The module is imported by its name rather than with an import statement, which would be circular: that module
    # imports this one.
    endpoint: LegacyEndpoint = importlib.import_module(f"{LEGACY}.endpoint").Endpoint(run, options)
    return endpoint
