"""Serves a server on socket listeners: each connection is one session."""

import contextlib
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Protocol, TypedDict

import trio

from trio_mcp._checks import check_count, check_seconds
from trio_mcp._log import logger
from trio_mcp._nursery import closing, without_cancellation
from trio_mcp._platform import AF_UNIX
from trio_mcp._settings import Default
from trio_mcp.link import Link
from trio_mcp.sockets.listening import keep_alive, peer_credentials
from trio_mcp.sockets.stream_link import PeerTerms, link_on_terms
from trio_mcp.tls import accept_tls

__all__ = ["SocketRun", "SocketSession", "SocketSettings", "serve_listeners"]

LAST_WORDS = 0.5
"""How long after the grace period the last messages may still be written, in seconds. An arbitrary choice: they are
only written to local buffers."""


class SocketSession(Protocol):
    """The session of one client of the server."""

    ending: bool

    async def end_listening(self) -> None:
        """Send the last changes to ``subscriptions/listen`` requests, and end them; this takes bounded time."""

    async def wait_idle(self) -> None:
        """Wait until no request handler is running."""

    async def aclose(self) -> None:
        """Cancel everything that is still running, and close the link."""


class SocketRun(Protocol):
    """One run of a server, which serves any number of connections."""

    async def serve_opening(
        self, opening: contextlib.AbstractAsyncContextManager[Link], opened: Callable[[Any], object]
    ) -> None:
        """Open a link, call ``opened`` with its session, and serve it until the client closes it."""


class SocketSettings(TypedDict, total=False):
    """The settings of `Server.serve_tcp` and `Server.serve_unix`, as keyword arguments.

    Attributes:
        max_message_size: The maximum length of a line from a client, in bytes; a longer line is refused and skipped.
        head_timeout: Seconds for the TLS handshake and the client's first message, counted from the connection's start.
        max_connections: How many connections may be open at once; further ones are closed.
        write_timeout: Seconds that a client may take to read 64 KiB once its buffers are full.
        grace: Seconds that requests under way are given to finish when the server ends.
    """

    # The defaults are the same as over HTTP; docs/reference/limits.md has a table of all bounds.
    max_message_size: Annotated[int, Default(4 * 1024 * 1024, check_count)]
    head_timeout: Annotated[float, Default(5.0, check_seconds)]
    max_connections: Annotated[int, Default(1000, check_count)]
    write_timeout: Annotated[float, Default(30.0, check_seconds)]
    grace: Annotated[float, Default(5.0, check_seconds)]


async def serve_listeners(
    run: SocketRun,
    listeners: list[trio.SocketListener],
    settings: SocketSettings,
    *,
    tls: ssl.SSLContext | None = None,
    shutdown: Callable[[], Awaitable[object]] = trio.sleep_forever,
    started: Callable[[], object],
) -> None:
    """Serve connections until ``shutdown`` returns, and then until the work under way has ended.

    Args:
        run: The run of the server that serves each connection.
        listeners: The listeners; the caller closes them.
        settings: The settings, all of them given.
        tls: The TLS configuration; None to serve without TLS.
        shutdown: Returns when no new work should be accepted.
        started: Called once connections are accepted.

    On cancellation, open ``subscriptions/listen`` requests get their responses, and everything else is cancelled.
    """
    server = _Server(run, settings, tls)
    async with closing(server.interrupt), trio.open_nursery() as serving:
        async with trio.open_nursery() as accepting:
            # Cancelling this inner nursery closes the listeners, while connections continue in the outer one.
            await accepting.start(partial(trio.serve_listeners, server.serve, listeners, handler_nursery=serving))
            started()
            await shutdown()
            accepting.cancel_scope.cancel("the server is ending")
        deadline = trio.current_time() + settings["grace"]
        # The last responses are written after the grace period, within a time limit, because a client that does not
        # read could delay them.
        serving.cancel_scope.deadline = deadline + LAST_WORDS
        await server.end(deadline)


class _Server:
    """Serves the connections to one server, and ends them when the server ends."""

    def __init__(self, run: SocketRun, settings: SocketSettings, tls: ssl.SSLContext | None) -> None:
        self._run = run
        self._settings = settings
        self._tls = tls
        self._ending = False
        self._count = 0
        self._handshakes: set[trio.CancelScope] = set()
        self._sessions: set[SocketSession] = set()
        self._interruptions: list[BaseException] = []

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve a connection from its acceptance to its end; a failure ends only this connection."""
        if self._ending or self._count >= self._settings["max_connections"]:
            return  # trio closes the connection
        self._count += 1
        try:
            await self._serve(stream)
        except Exception as exc:
            logger.error("a connection failed", exc_info=exc)
        except BaseException as exc:
            # A KeyboardInterrupt is raised again at the very end: closing the stream might replace it by Cancelled.
            if (interruption := without_cancellation(exc)) is not None:
                self._interruptions.append(interruption)
            raise
        finally:
            self._count -= 1

    async def _serve(self, accepted: trio.SocketStream) -> None:
        # The TLS handshake and the first message share this deadline, so that a client gains no time by being slow in
        # both.
        deadline = trio.current_time() + self._settings["head_timeout"]
        metadata: dict[str, Any] = {}
        stream: trio.abc.Stream = accepted
        if accepted.socket.family == AF_UNIX:
            if (peer := peer_credentials(accepted.socket)) is not None:
                metadata["peer"] = peer
        else:
            keep_alive(accepted.socket)
        if self._tls is not None:
            encrypted = trio.SSLStream(accepted, self._tls, server_side=True)
            if not await self._shake_hands(encrypted, deadline):
                return
            # `getpeercert` returns an empty dictionary if no certificate was verified, so handlers never see a
            # certificate that anyone could have made.
            if certificate := encrypted.getpeercert():
                metadata["certificate"] = certificate
            stream = encrypted
        sessions: list[SocketSession] = []

        def opened(session: SocketSession) -> None:
            sessions.append(session)
            self._sessions.add(session)
            # If the server has already begun to end, `end` has missed this session, so closing the socket ends it.
            if self._ending:
                accepted.socket.close()

        settings = self._settings
        terms = PeerTerms("the client", guarded=True, deadline=deadline, write_timeout=settings["write_timeout"])
        try:
            await self._run.serve_opening(
                link_on_terms(stream, terms, settings["max_message_size"], metadata or None), opened
            )
        finally:
            self._sessions.difference_update(sessions)

    async def _shake_hands(self, stream: trio.SSLStream[trio.SocketStream], deadline: float) -> bool:
        handshake = trio.CancelScope(deadline=deadline)
        self._handshakes.add(handshake)
        try:
            # `end` can't cancel a handshake that succeeds at the same moment, so `_ending` is checked as well.
            return await accept_tls(stream, handshake) and not self._ending
        finally:
            self._handshakes.discard(handshake)

    async def end(self, deadline: float) -> None:
        """End each connection when its requests under way have ended, or at the deadline."""
        self._ending = True
        # During a handshake no request is under way, so the handshake gets no grace period.
        for handshake in self._handshakes:
            handshake.cancel("the server is ending")
        async with trio.open_nursery() as nursery:
            for session in self._sessions:
                nursery.start_soon(self._end, session, deadline)

    async def _end(self, session: SocketSession, deadline: float) -> None:
        session.ending = True
        # Notifying the listeners is not limited by the grace period, because this step has its own bound, and must
        # happen even if the period is short.
        await session.end_listening()
        with trio.CancelScope(deadline=deadline):
            await session.wait_idle()
        await session.aclose()

    async def interrupt(self) -> None:
        """Raise the KeyboardInterrupt that ended a connection, if any."""
        for exc in self._interruptions:
            raise exc
