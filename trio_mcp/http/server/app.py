"""The ASGI application of a server: one MCP endpoint for every revision."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from trio_mcp.http.headers import LAST_EVENT_ID, SESSION_ID
from trio_mcp.http.param_headers import ParameterHeader, parameter_headers
from trio_mcp.http.rules.ladder import judge_head, judge_message, too_large
from trio_mcp.http.rules.verdicts import Accept, HttpSettings, Refusal, refuse
from trio_mcp.http.server.asgi import (
    BodyTooLarge,
    ClientGone,
    HttpAnswer,
    HttpRequest,
    ReceiveCallable,
    Scope,
    SendCallable,
)
from trio_mcp.http.server.cors import cors_fields, is_preflight, preflight_fields
from trio_mcp.http.server.exchange import HttpExchange
from trio_mcp.http.server.legacy.hosted import HostedConnection
from trio_mcp.http.server.legacy.session import HttpSession
from trio_mcp.http.server.legacy.sessions import Sessions
from trio_mcp.http.server.legacy.sse import SseSessions
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.jsonrpc.codec import decode
from trio_mcp.jsonrpc.messages import ErrorData, Malformed, Request
from trio_mcp.server.statistics import HttpStatistics
from trio_mcp.types.error_codes import OVERLOADED
from trio_mcp.types.versions import Era

if TYPE_CHECKING:
    from trio_mcp.server.run import Run

__all__ = ["HttpApp"]

logger = logging.getLogger("trio_mcp")


class HttpApp:
    """Serves one run of a server.

    Args:
        serving: The run.
        options: What the endpoint is like.
    """

    def __init__(self, serving: Run, options: HttpOptions) -> None:
        self._serving = serving
        self.options = options
        self._settings = {local: self._judged_by(local) for local in (True, False)}
        self._token = trio.lowlevel.current_trio_token()
        self._sessions = Sessions(serving, options)
        self._sse = None if options.sse_path is None else SseSessions(serving, options)
        self._requests = 0
        self._bodies = 0  # that are being read
        self._ending = False
        self._closed = False
        self._tool_headers: dict[str, tuple[object, tuple[ParameterHeader, ...]]] = {}
        serving.endpoints.append(self.statistics)

    def _judged_by(self, local: bool) -> HttpSettings:
        options = self.options
        return HttpSettings(
            revisions=self._serving.served.identity.revisions,
            guard=options.guard(local=local),
            stateless=options.stateless,
            json_only=options.json_only,
            max_message_size=options.max_message_size,
            tool_headers=self._headers_of_tool,
        )

    def _headers_of_tool(self, name: str) -> tuple[ParameterHeader, ...]:
        schema = self._serving.served.input_schema(name)
        if schema is None:
            self._tool_headers.pop(name, None)
            return ()
        known, headers = self._tool_headers.get(name, (None, ()))
        if known is not schema:
            headers = parameter_headers(schema)
            self._tool_headers[name] = schema, headers
        return headers

    async def __call__(self, scope: Scope, receive: ReceiveCallable, send: SendCallable) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})  # before it is accepted: the server answers 403
            return
        if scope["type"] != "http":
            raise RuntimeError(_other_scope(scope["type"]))
        self._check_run()
        await self.serve(HttpRequest(scope, receive), HttpAnswer(send))

    def _check_run(self) -> None:
        try:
            token = trio.lowlevel.current_trio_token()
        except RuntimeError:
            raise RuntimeError(
                "this application runs on Trio, and was called without it: serve it with `server.serve_http`, or with"
                " hypercorn's Trio worker (`hypercorn.trio.serve`, or `hypercorn -k trio`), not with an asyncio server"
            ) from None
        if token is not self._token:
            raise RuntimeError("this application belongs to another run of Trio: open `server.asgi_app()` in this one")
        if self._closed:
            raise RuntimeError("the block of `async with server.asgi_app() as app:` has been left: serve inside of it")

    async def serve(self, request: HttpRequest, answer: HttpAnswer) -> None:
        """Serve one exchange."""
        if self.options.cors and await self._is_preflight(request, answer):
            return
        if request.path != self.options.path:
            await self._elsewhere(request, answer)
            return
        settings = self._settings[request.is_local]
        verdict = judge_head(request.method, request.headers, settings, self._sessions.revision)
        if isinstance(verdict, Refusal):
            await self._refused(verdict, request, answer)
        elif verdict.kind == "message":
            await self._post(request, answer, settings)
        elif verdict.kind == "end":
            await self._sessions.delete(verdict, answer)
        elif self._ending and verdict.last_event_id is None:
            await self._refuse(self._no_room(), request, answer)
        else:  # also while it ends, the rest of a stream: it may have the answer to a request under way
            await self._sessions.get(verdict, request, answer)

    def statistics(self) -> HttpStatistics:
        """What the endpoint is doing now.

        It looks at every session once: cheap enough for each second, not for each request.
        """
        sessions = [each for each in self._serving.connections if isinstance(each, HttpSession)]
        return HttpStatistics(
            sessions=len(self._sessions),
            idle_sessions=self._sessions.idle_count,
            sse_sessions=0 if self._sse is None else len(self._sse),
            requests=self._requests,
            bodies=self._bodies,
            exchanges=sum(each.exchanges for each in sessions),
            listening=sum(each.router.rest.writer is not None for each in sessions),
            streams=sum(len(each.router.streams) - 1 for each in sessions),
            unanswered=sum(each.router.unanswered for each in sessions),
            unstored=sum(each.router.unstored for each in sessions),
            watching=self._sessions.watching,
            ending=self._ending,
        )

    async def end(self) -> None:
        """Take no more work, and end every stream that would never end by itself."""
        self._ending = True
        self._sessions.end_streams()
        if self._sse is not None:
            self._sse.end_when_idle()
        await self._serving.end_listening()

    def cut(self) -> None:
        """Cancel what is still under way, and end its streams."""
        for connection in tuple(self._serving.connections):
            if isinstance(connection, (HttpExchange, HostedConnection)):
                connection.end("the server has ended")

    async def idle(self) -> None:
        """Wait until no handler of a session runs any more.

        Its client may have left, and come back for the answer; or has been asked something, and answers in a POST.
        """
        for connection in tuple(self._serving.connections):
            if isinstance(connection, HostedConnection):
                await connection.idle()

    def close(self) -> None:
        """Serve nothing any more: the run is over."""
        self._closed = True

    async def _is_preflight(self, request: HttpRequest, answer: HttpAnswer) -> bool:
        """Say who may call, where that is so; and answer a browser that only asks for that."""
        origin = request.headers.get("Origin")
        if origin is None or self._foreign(request) is not None:
            return False  # the rules will refuse it, without a word that a page could read
        answer.fields += cors_fields(origin)
        if not is_preflight(request):
            return False
        await answer.whole(204, fields=preflight_fields(request))
        return True

    async def _body(self, request: HttpRequest, answer: HttpAnswer, settings: HttpSettings) -> bytes | None:
        """The body; None if the request has been refused, or the client has left."""
        if self._bodies >= self.options.max_requests:
            await self._refuse(self._no_room(), request, answer)
            return None
        self._bodies += 1
        try:
            with trio.CancelScope(deadline=trio.current_time() + self.options.body_timeout):
                return await request.body(settings.max_message_size)
        except BodyTooLarge:
            await self._refuse(too_large(settings), request, answer)
            return None
        except ClientGone:
            return None
        finally:
            self._bodies -= 1
        text = f"the body took longer than body_timeout={self.options.body_timeout:g} seconds"
        await self._refuse(refuse(408, text), request, answer)
        return None

    async def _post(self, request: HttpRequest, answer: HttpAnswer, settings: HttpSettings) -> None:
        body = await self._body(request, answer, settings)
        if body is None:
            return
        message = decode(body)
        verdict = judge_message(message, request.headers, settings, self._sessions.revision)
        if isinstance(verdict, Refusal):
            if isinstance(message, Malformed):
                self._sessions.feed_broken_answer(message, request.headers.get(SESSION_ID))
            await self._refuse(verdict, request, answer)
        elif not verdict.owes_answer:  # it may be what a handler under way waits for, so there is always room for it
            await self._accepted(verdict, request, answer)
        elif self._ending or self._requests >= self.options.max_requests:
            await self._refuse(self._no_room(), request, answer)
        else:
            self._requests += 1
            try:
                await self._accepted(verdict, request, answer)
            finally:
                self._requests -= 1

    async def _accepted(self, verdict: Accept, request: HttpRequest, answer: HttpAnswer) -> None:
        if verdict.era is Era.MODERN:
            await self._modern(verdict, request, answer)
        else:
            await self._sessions.post(verdict, request, answer)

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
        options = self.options
        if request.path == options.health_path and request.method in ("GET", "HEAD"):
            status, said = (503, b"ending") if self._ending else (200, b"ok")
            await answer.whole(status, b'{"status": "%s"}' % said)
        elif self._sse is not None and (request.path, request.method) == (options.sse_path, "GET"):
            await self._open_sse(self._sse, request, answer)
        elif self._sse is not None and (request.path, request.method) == (options.message_path, "POST"):
            await self._post_sse(self._sse, request, answer)
        elif self._sse is not None and request.path in (options.sse_path, options.message_path):
            # A client that looks for an endpoint of the later revisions posts here first, and takes this for a no.
            allowed = "GET" if request.path == options.sse_path else "POST"
            refusal = refuse(405, f"the method is not allowed here, only {allowed}", headers=(("Allow", allowed),))
            await self._refuse(refusal, request, answer)
        else:
            text = f"there is nothing here; the endpoint is {request.root}{options.path or options.sse_path}"
            await request.drain()
            await answer.whole(404, text.encode(), (("content-type", "text/plain; charset=utf-8"),))

    async def _open_sse(self, sse: SseSessions, request: HttpRequest, answer: HttpAnswer) -> None:
        refusal = self._foreign(request) or (self._no_room() if self._ending else await sse.get(request, answer))
        if refusal is not None:
            await self._refuse(refusal, request, answer)

    async def _post_sse(self, sse: SseSessions, request: HttpRequest, answer: HttpAnswer) -> None:
        refusal = self._foreign(request) or sse.refuse_post(request)
        if refusal is None:
            body = await self._body(request, answer, self._settings[request.is_local])
            refusal = None if body is None else await sse.post(body, request, answer)
        if refusal is not None:
            await self._refuse(refusal, request, answer)

    def _foreign(self, request: HttpRequest) -> Refusal | None:
        fault = self._settings[request.is_local].guard.check(request.headers)
        return None if fault is None else refuse(403, fault)

    async def _refused(self, refusal: Refusal, request: HttpRequest, answer: HttpAnswer) -> None:
        """Refuse by the head; but what a store still has of a session that is gone is given."""
        session, last = request.headers.get(SESSION_ID), request.headers.get(LAST_EVENT_ID)
        gone = request.method == "GET" and refusal.status == 404 and session is not None and last is not None
        if gone and session and last and await self._sessions.replay_of_another_run(session, last, answer):
            return
        await self._refuse(refusal, request, answer)

    async def _refuse(self, refusal: Refusal, request: HttpRequest, answer: HttpAnswer) -> None:
        logger.debug("refused with %s by the rule %r", refusal.status, refusal.rule)
        await request.drain()
        await answer.whole(refusal.status, refusal.body, refusal.headers)

    def _no_room(self) -> Refusal:
        text = "the server is ending" if self._ending else "too many requests at once; try again later"
        return refuse(503, ErrorData(OVERLOADED, text), headers=(("Retry-After", "1"),))


def _other_scope(kind: str) -> str:
    if kind == "lifespan":
        return (
            "this application has no ASGI lifespan: its life is the block of `async with server.asgi_app() as app:`,"
            " which has to surround whatever serves it; mount it, or tell the server not to ask"
        )
    return f"this application serves HTTP, not {kind}"
