"""Waits for the redirection of a browser, on a port of the loopback interface (RFC 8252, section 7.3)."""

from __future__ import annotations

import contextlib
import errno
import hmac
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

import h11
import trio

from trio_mcp._nursery import background_nursery, start
from trio_mcp.errors import AuthorizationError

__all__ = ["Redirections", "listening", "parameters_of"]

MAX_WRONG: Final = 100
"""How many redirections with a wrong ``state`` end the wait.

An arbitrary choice: a person causes a handful, and an attacker can't guess the ``state`` in so few attempts.
"""
MAX_CONNECTIONS: Final = 32
"""The maximum number of connections; for one more, the oldest one without a complete request head is closed.

An arbitrary choice: a browser opens a few connections ahead of time.
"""
LONGEST_HEAD: Final = 32 * 1024
"""The maximum size of a request head, in bytes.

An arbitrary choice: a code may take several kilobytes, and a browser sends a host's cookies to all of its ports.
"""
TIMEOUT: Final = 10.0
"""How many seconds a request and its response may take together."""

# The addresses are fixed rather than resolved, so that no entry of a resolver can make the listener reachable from
# other machines. A browser may choose either address for `localhost`, so both are listened on.
_ADDRESSES: Final = {"127.0.0.1": ["127.0.0.1"], "::1": ["::1"], "localhost": ["127.0.0.1", "::1"]}

# The page does not say whether the sign-in succeeded: the parameters of the redirection are checked only later.
_PAGE: Final = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1><p>{text}</p></body></html>
"""
# The page's URL contains the authorization code, so no cache may keep the page, and no request from the page may reveal
# its URL. The page has no script, so no script is allowed to run.
_FIELDS: Final = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
    ("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Connection", "close"),
]
_TITLES: Final = {
    200: ("Done", "You can close this page and go back to the program."),
    400: ("Not expected", "This is not the sign-in that the program is waiting for. The program is still waiting."),
    404: ("Not found", "There is nothing here."),
    405: ("Not allowed", "Only GET is allowed here."),
}


def parameters_of(query: str, state: str) -> Mapping[str, str] | None:
    """Return the parameters of a redirection; None if any is malformed or repeated, or if ``state`` is wrong."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=50, errors="strict")
    except ValueError:
        return None
    found = dict(pairs)
    # The comparison takes constant time: its duration must not show how much of a guess is right.
    right = hmac.compare_digest(found.get("state", "").encode(), state.encode())
    # No parameter may occur twice (RFC 6749, section 3.1): other code could read the occurrence that was not checked.
    return found if right and max(Counter(name for name, _ in pairs).values()) == 1 else None


class Redirections:
    """Receives the browser redirections that arrive at a redirect URI.

    Args:
        uri: The redirect URI, with the port that was bound.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        parts = urlsplit(uri)
        self._host = parts.netloc.lower()
        self._path = parts.path or "/"
        self._state: str | None = None
        self._outcome: Mapping[str, str] | None = None
        self._ended = trio.Event()
        self._wrong = 0
        self._silent: dict[trio.CancelScope, None] = {}  # connections without a complete head, the oldest first
        self._answered = 0  # how many connections are being sent a response

    async def one(self, state: str) -> Mapping[str, str]:
        """Wait for the redirection with this ``state``, and return its parameters.

        Other redirections get a 400, and the wait goes on.

        Raises:
            AuthorizationError: If 100 wrong redirections have arrived.
        """
        self._state, self._outcome, self._ended = state, None, trio.Event()
        try:
            await self._ended.wait()
        finally:
            self._state = None
        if self._outcome is None:
            raise AuthorizationError(
                "redirection",
                f"none of {MAX_WRONG} redirections to {self.uri} belonged to this sign-in",
                advice="find out what sends them, then sign in again",
            )
        return self._outcome

    def arrived(self, query: str) -> Mapping[str, str] | None:
        """Record a redirection, given its query; return its parameters if it is the expected one, otherwise None."""
        found = None if self._state is None else parameters_of(query, self._state)
        if found is not None:
            self._state = None  # each redirection counts once
        elif self._state is not None:
            self._wrong += 1
            if self._wrong >= MAX_WRONG:
                self._ended.set()
        return found

    def settle(self, parameters: Mapping[str, str]) -> None:
        """End the wait for a redirection with the parameters that `arrived` returned."""
        self._outcome = parameters
        self._ended.set()

    async def serve(self, stream: trio.abc.HalfCloseableStream) -> None:
        """Respond to one request, and close the connection."""
        async with stream:
            if len(self._silent) + self._answered >= MAX_CONNECTIONS and not self._make_room():
                return
            # Browsers open connections ahead of time and may never use them. Such connections are closed after a while,
            # so that they don't use up `MAX_CONNECTIONS`.
            with trio.move_on_after(TIMEOUT) as scope:
                self._silent[scope] = None
                try:
                    await self._serve(stream, scope)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    pass
                finally:
                    self._silent.pop(scope, None)

    def _make_room(self) -> bool:
        """Close the oldest connection that has not sent a complete request head; return whether there was one."""
        # The new connection may be that of the browser, which sends its request head at once, whereas any program on
        # this machine can keep connections open without sending anything.
        oldest = next(iter(self._silent), None)
        if oldest is None:
            return False
        del self._silent[oldest]
        oldest.cancel("a newer connection replaced this one")
        return True

    async def _serve(self, stream: trio.abc.HalfCloseableStream, scope: trio.CancelScope) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=LONGEST_HEAD)
        found: Mapping[str, str] | None = None
        try:
            while (event := connection.next_event()) is h11.NEED_DATA:
                connection.receive_data(bytes(await stream.receive_some()))
            if not isinstance(event, h11.Request):  # the connection was closed without a request
                return
            status, found = self._judge(event)
        except h11.RemoteProtocolError:
            status = 400
        self._silent.pop(scope, None)
        self._answered += 1
        try:
            await stream.send_all(_response(status))
            await stream.send_eof()
        except trio.BrokenResourceError:
            pass  # the redirection counts, though the person does not see the page
        finally:
            self._answered -= 1
            # The redirection is settled last, because the waiting task then closes the listener, and with it this
            # connection, but the person should see the page first. It is settled in `finally`, because the sign-in
            # counts even if the browser does not read the page.
            if found is not None:
                self.settle(found)

    def _judge(self, request: h11.Request) -> tuple[int, Mapping[str, str] | None]:
        hosts = [value for name, value in request.headers if name == b"host"]
        # The host has to be that of the redirect URI, because an attacker can make another name resolve to this address
        # (DNS rebinding).
        if hosts != [self._host.encode()] and [host.lower() for host in hosts] != [self._host.encode()]:
            return 400, None
        path, _, query = request.target.decode("ascii", "replace").partition("?")
        if path != self._path:
            return 404, None  # a browser asks for an icon of the page, for example
        if request.method != b"GET":
            return 405, None
        # Only a request for a page that the browser shows can be a redirection. A request for a resource that some page
        # embeds or fetches does not even count as a wrong redirection, or any page could use up `MAX_WRONG`.
        if any(value != b"document" for name, value in request.headers if name == b"sec-fetch-dest"):
            return 400, None
        found = self.arrived(query)
        return (400 if found is None else 200), found


def _response(status: int) -> bytes:
    title, text = _TITLES[status]
    body = _PAGE.format(title=title, text=text).encode()
    fields = [*_FIELDS, ("Content-Length", str(len(body))), *([("Allow", "GET")] if status == 405 else [])]
    # A new `h11.Connection` writes the response, since one that has met a malformed request sends nothing more.
    head = h11.Connection(h11.SERVER).send(h11.Response(status_code=status, headers=fields))
    return (head or b"") + body


@contextlib.asynccontextmanager
async def listening(redirect: str) -> AsyncIterator[Redirections]:
    """Return a context manager; inside its block, redirections are received.

    Args:
        redirect: The redirect URI, with ``127.0.0.1``, ``[::1]`` or ``localhost`` as its host; port 0 is any free port.

    Raises:
        AuthorizationError: If the port is taken, or can't be listened on.
        ValueError: If the URI is not an ``http`` URL on loopback without a query.
    """
    parts = _checked(redirect)
    host = parts.hostname or ""
    listeners: list[trio.SocketListener] = []
    async with contextlib.AsyncExitStack() as stack:
        port = 80 if parts.port is None else parts.port
        for address in _ADDRESSES[host]:
            try:
                (listener,) = await trio.open_tcp_listeners(port, host=address, backlog=MAX_CONNECTIONS)
            except OSError as exc:
                # A machine without IPv6 has no ::1, and does not need it. But a port that another program uses is an
                # error even on the second address: that program would get the redirections from browsers that prefer
                # this address.
                if listeners and exc.errno != errno.EADDRINUSE:
                    continue
                raise AuthorizationError(
                    "redirection",
                    f"can't listen on port {port} of {address}: {exc.strerror or exc}",
                    advice="stop the program that uses the port, or set another `redirect`",
                ) from None
            listeners.append(await stack.enter_async_context(listener))
            # The second address gets the same port as the first, because there is only one redirect URI.
            port = listener.socket.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        # A URI without a port is left unchanged: authorization servers compare it with the registered one.
        netloc = shown if parts.port is None else f"{shown}:{port}"
        redirections = Redirections(parts._replace(netloc=netloc).geturl())
        async with background_nursery() as nursery:
            await start(nursery, partial(trio.serve_listeners, redirections.serve, listeners))
            yield redirections


def _checked(redirect: str) -> SplitResult:
    try:
        parts = urlsplit(redirect)
        # The port is read because an invalid port raises a `ValueError` only when it is read.
        fits = parts.scheme == "http" and parts.hostname in _ADDRESSES and (parts.port or 0) >= 0
    except ValueError:
        fits = False
    if not fits or parts.username is not None or parts.query or parts.fragment:
        raise ValueError(
            f"redirect must be an http URL with the host 127.0.0.1, [::1] or localhost and without a query, such as"
            f" 'http://127.0.0.1:0/callback', got {redirect!r}"
        )
    return parts
