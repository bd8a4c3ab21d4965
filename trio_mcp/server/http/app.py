"""The ASGI application of a server: one MCP endpoint for every revision."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from trio_mcp.protocol.codec import decode
from trio_mcp.protocol.http_exchange import Accept, HttpSettings, Refusal, refuse
from trio_mcp.protocol.http_parameters import ParameterHeader, parameter_headers
from trio_mcp.protocol.http_server import judge_head, judge_message, too_large
from trio_mcp.protocol.messages import ErrorData, Request
from trio_mcp.server.http.exchange import HttpExchange
from trio_mcp.server.http.options import HttpOptions
from trio_mcp.transports.asgi import (
    BodyTooLarge,
    ClientGone,
    HttpAnswer,
    HttpRequest,
    ReceiveCallable,
    Scope,
    SendCallable,
)
from trio_mcp.types.error_codes import OVERLOADED
from trio_mcp.types.versions import Era

if TYPE_CHECKING:
    from trio_mcp.server.serving import Serving

__all__ = ["HttpApp"]

logger = logging.getLogger("trio_mcp")


class HttpApp:
    """Serves one run of a server.

    Args:
        serving: The run.
        options: What the endpoint is like.
    """

    def __init__(self, serving: Serving, options: HttpOptions) -> None:
        self._serving = serving
        self.options = options
        self._settings = {local: self._judged_by(local) for local in (True, False)}
        self._requests = 0
        self._ending = False
        self._closed = False
        self._tool_headers: dict[int, tuple[ParameterHeader, ...]] = {}

    def _judged_by(self, local: bool) -> HttpSettings:
        options = self.options
        return HttpSettings(
            revisions=self._serving.server.identity.revisions,
            guard=options.guard(local=local),
            stateless=options.stateless,
            json_only=options.json_only,
            max_message_size=options.max_message_size,
            tool_headers=self._headers_of_tool,
        )

    def _headers_of_tool(self, name: str) -> tuple[ParameterHeader, ...]:
        tool = self._serving.server._tools.get(name)
        if tool is None:
            return ()
        found = self._tool_headers.get(id(tool))
        if found is None:
            found = self._tool_headers[id(tool)] = parameter_headers(tool.definition.input_schema)
        return found

    async def __call__(self, scope: Scope, receive: ReceiveCallable, send: SendCallable) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"this application serves HTTP, not {scope['type']}")
        if self._closed:
            raise RuntimeError("the block of `async with server.asgi_app() as app:` has been left: serve inside of it")
        await self.serve(HttpRequest(scope, receive), HttpAnswer(send))

    async def serve(self, request: HttpRequest, answer: HttpAnswer) -> None:
        """Serve one exchange."""
        if request.path != self.options.path:
            await self._elsewhere(request, answer)
            return
        settings = self._settings[request.is_local]
        verdict = judge_head(request.method, request.headers, settings, self.session_revision)
        if isinstance(verdict, Refusal):
            await self._refuse(verdict, request, answer)
        elif self._ending or self._requests >= self.options.max_requests:
            await self._refuse(self._no_room(), request, answer)
        else:
            self._requests += 1
            try:
                await self._post(request, answer, settings)
            except ClientGone:
                pass
            finally:
                self._requests -= 1

    async def end(self) -> None:
        """Take no more work, and end every stream that would never end by itself."""
        self._ending = True
        await self._serving.end_listening(self._serving.connections)

    def close(self) -> None:
        """Serve nothing any more: the run is over."""
        self._closed = True

    def session_revision(self, session: str) -> str | None:
        """The revision of a session of the handshake era."""
        return None

    async def _post(self, request: HttpRequest, answer: HttpAnswer, settings: HttpSettings) -> None:
        body: bytes | None = None
        with trio.CancelScope(deadline=trio.current_time() + self.options.body_timeout):
            try:
                body = await request.body(settings.max_message_size)
            except BodyTooLarge:
                await self._refuse(too_large(settings), request, answer)
                return
        if body is None:
            text = f"the body took longer than body_timeout={self.options.body_timeout:g} seconds"
            await self._refuse(refuse(408, text), request, answer)
            return
        verdict = judge_message(decode(body), request.headers, settings, self.session_revision)
        if isinstance(verdict, Refusal):
            await self._refuse(verdict, request, answer)
        elif verdict.era is Era.MODERN:
            await self._modern(verdict, request, answer)

    async def _modern(self, accepted: Accept, request: HttpRequest, answer: HttpAnswer) -> None:
        if not isinstance(accepted.message, Request):
            await answer.whole(202)
            return
        exchange = HttpExchange(
            self._serving, answer, may_stream=accepted.may_stream, keep_alive=self.options.keep_alive
        )
        self._serving.connections.add(exchange)
        try:
            await exchange.serve(accepted.message, request, {"headers": request.headers})
        finally:
            self._serving.connections.discard(exchange)

    async def _elsewhere(self, request: HttpRequest, answer: HttpAnswer) -> None:
        if request.path == self.options.health_path and request.method in ("GET", "HEAD"):
            await answer.whole(
                503 if self._ending else 200, b'{"status": "ending"}' if self._ending else b'{"status": "ok"}'
            )
            return
        await self._refuse(refuse(404, f"there is nothing here; the endpoint is {self.options.path}"), request, answer)

    async def _refuse(self, refusal: Refusal, request: HttpRequest, answer: HttpAnswer) -> None:
        logger.debug("refused with %s by the rule %r", refusal.status, refusal.rule)
        await request.drain()
        await answer.whole(refusal.status, refusal.body, refusal.headers)

    def _no_room(self) -> Refusal:
        text = "the server is ending" if self._ending else "too many requests at once; try again later"
        return refuse(503, ErrorData(OVERLOADED, text), headers=(("Retry-After", "1"),))
