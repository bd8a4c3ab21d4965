"""``--verbose``: show on standard error, without secrets, what passes between the client and the server."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trio_mcp._checks import as_written
from trio_mcp._secrets import mask_text, mask_words
from trio_mcp._version import __version__
from trio_mcp.cli.messages import Style, paint
from trio_mcp.cli.text import clean, clean_line, shorten
from trio_mcp.client.config.reading import Configured
from trio_mcp.client.failover.parameters import FailoverParameters
from trio_mcp.client.targets import HttpConnector, LinkFactory, Target, link_factory, target_name
from trio_mcp.conformance.transcript.masking import Masker
from trio_mcp.errors import HttpError
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorResponse,
    Incoming,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    SessionMessage,
    TransportFailure,
    show_id,
)
from trio_mcp.link import Link
from trio_mcp.stdio.parameters import StdioServerParameters

if TYPE_CHECKING:
    import httpx  # noqa: ASYNC127 - for types only

__all__ = ["Trace"]

MAX_SHOWN = 500
"""How many characters of a message are shown at most (arbitrary: about six lines of a terminal)."""
MAX_OPEN = 1000
"""How many requests without a response are remembered at most (arbitrary): cancelled ones may never get a response."""
CONNECT_TIMEOUT = 30.0
"""How many seconds connecting over HTTP may take: the same as without a trace. The session limits all other waits."""

SENT, RECEIVED, NOTE = "-->", "<--", "***"


class Trace:
    """A trace, on standard error, of what passes over the links to servers.

    Args:
        before: Called before anything is written, to clear the current line of the terminal.
    """

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self._before = before
        self._began: float | None = None
        self._open: dict[RequestId, tuple[str, float]] = {}
        # All links share one masker, so that a session's id is replaced by the same name on each of them.
        self._masker = Masker()

    def of(self, target: Configured) -> Target:
        """Return a target for a `Client` whose links are traced."""
        if isinstance(target, FailoverParameters):
            return attrs.evolve(target, targets=[self.of(each) for each in target.targets])
        if isinstance(target, HttpServerParameters):
            return _TracedHttp(target, self)
        return _Traced(target_name(target), link_factory(target), _described(target), self)

    # --- what is written ---------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Write a line about the link."""
        self._write(NOTE, mask_text(text))

    def head(self, mark: str, line: str, headers: Mapping[str, str] | None = None) -> None:
        """Write the head of an HTTP message."""
        # The masker recognises header fields only as pairs in a list that is called "headers".
        shown = self._masker.value({"headers": [[*each] for each in (headers or {}).items()]})["headers"]
        self._write(mark, mask_text(line), "".join(f"\n{name}: {value}" for name, value in shown))

    def message(self, mark: str, message: Incoming) -> None:
        """Write a message, or the problem that was reported in place of one."""
        match message:
            case Request(id=id_, method=method, params=params):
                if mark == SENT:
                    if len(self._open) >= MAX_OPEN:
                        self._open.clear()
                    self._open[id_] = method, trio.current_time()
                self._write(mark, f"{method} ({show_id(id_)})", self._json(params))
            case Notification(method=method, params=params):
                self._write(mark, method, self._json(params))
            case Response(id=id_, result=result):
                self._write(mark, f"result{self._to(mark, id_)}", self._json(result))
            case ErrorResponse(id=id_, error=error):
                data = self._json(error.data)
                text = mask_text(error.message)
                self._write(mark, f"error {error.code}{self._to(mark, id_)}", f" {text}{data}", style="error")
            case Batch(items=items):
                self._write(mark, f"a batch of {len(items)}")
                for each in items:
                    self.message(mark, each)
            case Malformed(reason=reason):
                self._write(mark, "malformed", f" {mask_text(reason)}", style="error")
            case TransportFailure(error=exc):
                self._write(NOTE, "lost", f" {mask_text(str(exc))}", style="error")

    def _to(self, mark: str, id_: RequestId | None) -> str:
        if id_ is None:
            return ""
        method, asked = self._open.pop(id_, ("", 0.0)) if mark == RECEIVED else ("", 0.0)
        took = f" of {method}, {(trio.current_time() - asked) * 1000:.0f} ms" if method else ""
        return f"{took} ({show_id(id_)})"

    def _json(self, value: Any) -> str:
        return "" if value is None else f" {json.dumps(self._masker.value(value), ensure_ascii=False)}"

    def _write(self, mark: str, what: str, rest: str = "", style: Style = "name") -> None:
        now = trio.current_time()
        self._began = now if self._began is None else self._began
        if len(rest) > MAX_SHOWN:
            rest = f"{rest[:MAX_SHOWN]}… ({len(rest):,} characters)"
        self._before()
        time = paint(f"{now - self._began:8.3f} s", "aside", sys.stderr)
        # Line breaks in a peer's text are removed or indented, because the text must not look like lines of this trace.
        what, rest = clean_line(shorten(what, MAX_SHOWN)), clean(rest).replace("\n", f"\n{' ' * 14}")
        print(f"{time} {mark} {paint(what, style, sys.stderr)}{rest}", file=sys.stderr, flush=True)


def _described(target: object) -> str:
    if isinstance(target, StdioServerParameters):
        return f"starts {mask_words(map(shlex.quote, map(as_written, [target.command, *target.args])))}"
    return f"connects to {target}"


# --- links ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class _Traced:
    """A connector for any target; it traces the messages on its link."""

    name: str  # `target_name` reads it
    connect: LinkFactory
    described: str
    trace: Trace

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[Link]:
        self.trace.note(self.described)
        async with self.connect() as link:
            yield _traced(link, self.trace)


@attrs.frozen
class _TracedHttp(HttpConnector):
    """A connector for a server with a URL, which also traces the heads of HTTP messages."""

    trace: Trace

    @property
    def name(self) -> str:  # `target_name` reads it
        return target_name(self.parameters)

    def __call__(self) -> contextlib.AbstractAsyncContextManager[Link]:
        return self._websocket() if self.parameters.kind == "ws" else self._http()

    @contextlib.asynccontextmanager
    async def _http(self) -> AsyncIterator[Link]:
        import httpx  # noqa: ASYNC127 - the import takes a moment, but nothing else runs yet

        from trio_mcp.http.client.door import sse_client
        from trio_mcp.http.client.proxies import proxy_of
        from trio_mcp.http.client.sending.on_httpx import trusting
        from trio_mcp.http.client.streamable import streamable_http_client

        connect = sse_client if self.parameters.kind == "sse" else streamable_http_client
        # httpx need not limit the connections, because the link itself limits them.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with (
            httpx.AsyncClient(
                timeout=CONNECT_TIMEOUT,
                limits=limits,
                headers={"User-Agent": f"trio-mcp/{__version__}"},
                event_hooks={"request": [self._asked], "response": [self._answered]},
                # These settings are those of a link without a trace. By default httpx would use a proxy even for
                # servers on this machine.
                verify=trusting(),
                proxy=proxy_of(self.parameters.url),
                trust_env=False,
            ) as client,
            connect(
                self.parameters.url, headers=self.parameters.headers, auth=self.parameters.auth, http_client=client
            ) as link,
        ):
            yield _traced(link, self.trace)

    async def _asked(self, request: httpx.Request) -> None:
        self.trace.head(SENT, f"{request.method} {request.url}", request.headers)

    async def _answered(self, response: httpx.Response) -> None:
        self.trace.head(RECEIVED, f"{response.status_code} {response.reason_phrase}".rstrip(), response.headers)

    @contextlib.asynccontextmanager
    async def _websocket(self) -> AsyncIterator[Link]:
        from trio_mcp.http.client.websocket import websocket_client

        url, headers = self.parameters.url, self.parameters.headers
        self.trace.head(SENT, f"GET {url} (the handshake of a WebSocket)", headers)
        try:
            async with websocket_client(url, headers=headers, auth=self.parameters.auth) as link:
                self.trace.head(RECEIVED, "101 Switching Protocols")
                yield _traced(link, self.trace)
        except HttpError as exc:
            self.trace.head(RECEIVED, f"{exc.status} {exc.reason}", exc.headers)
            raise


def _traced(link: Link, trace: Trace) -> Link:
    return link._replace(read=_Read(link.read, trace), write=_Write(link.write, trace))


@attrs.frozen(eq=False)
class _Read(trio.abc.ReceiveChannel[SessionMessage]):
    """The reading end of a link; it also traces every message that arrives."""

    _channel: trio.abc.ReceiveChannel[SessionMessage]
    _trace: Trace

    async def receive(self) -> SessionMessage:
        item = await self._channel.receive()
        self._trace.message(RECEIVED, item.message)
        return item

    async def aclose(self) -> None:
        await self._channel.aclose()


@attrs.frozen(eq=False)
class _Write(trio.abc.SendChannel[SessionMessage]):
    """The writing end of a link; it also traces every message that is sent."""

    _channel: trio.abc.SendChannel[SessionMessage]
    _trace: Trace

    async def send(self, value: SessionMessage) -> None:
        # The message is traced before it is sent: over HTTP, the heads of its exchange are traced during the send.
        self._trace.message(SENT, value.message)
        await self._channel.send(value)

    async def aclose(self) -> None:
        await self._channel.aclose()
